"""`eacgm bench`: the project's benchmarks, and judging a folder of cases."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eacgm.bench.registry import BENCHMARKS, Benchmark
from eacgm.cli.options import config_options, json_option
from eacgm.cli.output import Progress, note, print_json, print_table, show

if TYPE_CHECKING:
    from eacgm.bench.verdict import Summary, Verdict
    from eacgm.config import Config


@click.group("bench")
def command() -> None:
    """Measure eACGM itself, on this machine.

    \b
    Example:
      eacgm bench pipeline
      eacgm bench cases FOLDER --json
    """  # noqa: D301 - click reads the backspace as: keep these lines


@command.command("cases", short_help="Import, replay and judge a folder of cases.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--processes", default=2, show_default=True, type=click.IntRange(1, 64), help="Cases run at a time.")
@click.option("--incidents", is_flag=True, help="Also print every incident: when, what, whom.")
@config_options
@json_option
def cases(folder: Path, processes: int, incidents: bool, config: Config, as_json: bool) -> None:
    """Import, replay and judge every case in FOLDER (telemetry.csv.gz and expected.json each).

    Prints a line per case and the figures over all. The exit status is 0 when all cases ran, whatever the verdicts.

    \b
    Example:
      eacgm bench cases cases --set detect.hang_seconds=6
    """  # noqa: D301 - click reads the backspace as: keep these lines
    from eacgm.bench.cases import find_cases, run_cases
    from eacgm.bench.verdict import summarise

    found = find_cases(folder)
    done: list[Verdict] = []
    with Progress("judging") as progress:

        def on_case(verdict: Verdict) -> None:
            done.append(verdict)
            progress.update(cases=f"{len(done)}/{len(found)}", passed=sum(one.passed for one in done))

        verdicts = run_cases(found, config, processes, on_case)
    summary = summarise(verdicts)
    if as_json:
        for verdict in verdicts:
            print_json(_case_record(verdict))
        print_json({"summary": asdict(summary)})
        return
    print_table([_case_row(verdict) for verdict in verdicts])
    if incidents:
        click.echo()
        print_table([row for verdict in verdicts for row in _incident_rows(verdict)])
    click.echo()
    click.echo(_closing_line(summary))


def _case_row(verdict: Verdict) -> dict[str, Any]:
    met = sum(delay is not None for delay in verdict.delays_s)
    delays = [show(delay) if delay is not None else "missed" for delay in verdict.delays_s]
    return {
        "case": verdict.case,
        "met": f"{met}/{len(verdict.delays_s)}",
        "delay s": ", ".join(delays),
        "incidents": len(verdict.incidents),
        "beyond limit": verdict.extra,
        "causes": ", ".join(dict.fromkeys(cause for one in verdict.incidents for cause in one.causes)),
        "forbidden": ", ".join(verdict.forbidden),
        "verdict": "pass" if verdict.passed else "FAIL",
    }


def _incident_rows(verdict: Verdict) -> list[dict[str, Any]]:
    return [
        {
            "case": verdict.case,
            "detected s": incident.detected_s,
            "causes": " > ".join(incident.causes),
            "ranks": ", ".join(map(str, incident.ranks)),
            "summary": incident.summary,
        }
        for incident in verdict.incidents
    ]


def _case_record(verdict: Verdict) -> dict[str, Any]:
    return {
        "case": verdict.case,
        "passed": verdict.passed,
        "expected_alerts": len(verdict.delays_s),
        "delays_s": list(verdict.delays_s),
        "incidents": [
            {"detected_s": one.detected_s, "causes": list(one.causes), "ranks": list(one.ranks)}
            for one in verdict.incidents
        ],
        "extra_incidents": verdict.extra,
        "forbidden_causes": list(verdict.forbidden),
        "seconds": verdict.seconds,
    }


def _closing_line(summary: Summary) -> str:
    recall = "-" if summary.recall is None else f"{summary.recall:.2f}"
    return (
        f"passed {summary.passed} of {summary.cases}, recall {recall} "
        f"({summary.met_alerts} of {summary.expected_alerts}), extra incidents per hour "
        f"{summary.extra_incidents_per_hour:.2f} ({summary.extra_incidents} in {summary.hours:.2f} h)"
    )


def _benchmark_command(name: str, benchmark: Benchmark) -> click.Command:
    """Return the command of one benchmark of the table."""

    def measure(as_json: bool, folder: Path | None = None) -> None:
        from eacgm.bench.registry import run

        note(f"measuring {name}: {benchmark.summary}")
        rows = run(name, folder)
        if as_json:
            for row in rows:
                print_json(row)
        else:
            print_table(rows)

    argument = " FOLDER" if benchmark.takes_folder else ""
    help_text = f"{benchmark.summary}\n\n\b\nExample:\n  eacgm bench {name}{argument}"
    made: Any = json_option(measure)
    if benchmark.takes_folder:
        made = click.argument("folder", type=click.Path(path_type=Path))(made)
    return click.command(name, help=help_text, short_help=benchmark.summary)(made)


for _name, _benchmark in BENCHMARKS.items():
    command.add_command(_benchmark_command(_name, _benchmark))
