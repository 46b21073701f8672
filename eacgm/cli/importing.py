"""`eacgm import`: other tools' data becomes a recording."""

from __future__ import annotations

from pathlib import Path

import click

from eacgm.cli.destination import new_folder
from eacgm.cli.options import job_name, json_option
from eacgm.cli.output import Progress, note, print_json, show


@click.group("import")
def command() -> None:
    """Turn other tools' data into a recording, to be replayed like one of our own.

    \b
    Example:
      eacgm import table telemetry.csv.gz --out recording
      eacgm replay recording
    """  # noqa: D301 - click reads the backspace as: keep these lines


@command.command("table")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The recording's folder; must be new.")
@click.option("--job", callback=job_name, help="The job's name where a table has no column job; else the file's name.")
@json_option
def table(files: tuple[Path, ...], out: Path, job: str | None, as_json: bool) -> None:
    """Import long tables: CSV (also gzipped) or Parquet.

    Columns time_s (seconds since 1970), rank, metric, value; if you have them job, node, group (peers that do the same
    work) and phase. Rows stand in order of time. Several files are merged by time.

    \b
    Example:
      eacgm import table node0.csv node1.csv --job llama --out recording
    """  # noqa: D301 - click reads the backspace as: keep these lines
    from eacgm.producers.table import ImportStatistics, table_events
    from eacgm.schemas.recording import RecordingWriter

    statistics = ImportStatistics()
    jobs: set[str] = set()
    ranks: set[tuple[str, int | None]] = set()
    with new_folder(out) as folder, Progress("importing") as progress:

        def show_numbers() -> None:
            progress.update(readings=statistics.readings, events=statistics.events, ranks=len(ranks))

        with RecordingWriter(folder) as writer:
            for event in table_events(files, job, statistics, on_block=show_numbers):
                jobs.add(event.job)
                ranks.add((event.job, event.rank))
                writer.write(event)
    seconds = ((statistics.last_ns or 0) - (statistics.first_ns or 0)) // 1_000_000_000
    if as_json:
        print_json(
            {
                "out": str(out),
                "jobs": sorted(jobs),
                "ranks": len(ranks),
                "readings": statistics.readings,
                "events": statistics.events,
                "seconds": seconds,
            }
        )
    else:
        note(f"{out}: {show(statistics.readings)} readings of {show(len(ranks))} ranks over {show(seconds)} s")
