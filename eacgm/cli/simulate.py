"""`eacgm simulate`: a seeded cluster with planted faults becomes a recording."""

from __future__ import annotations

import json
from pathlib import Path

import click

from eacgm.cli.destination import new_folder
from eacgm.cli.options import job_name, json_option
from eacgm.cli.output import Progress, note, print_json, show


@click.command("simulate")
@click.option("--ranks", default=8, show_default=True, type=click.IntRange(1, 65_536), help="Processes of the job.")
@click.option("--seconds", default=300, show_default=True, type=click.IntRange(1, 86_400), help="Length of the job.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="The same seed, the same recording.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="KIND[@RANK][:START[-END]]",
    help="A fault to plant: a cause of the alerts, whom it strikes, when (seconds); may be repeated.",
)
@click.option("--ranks-per-node", default=8, show_default=True, type=click.IntRange(1), help="GPUs of a node.")
@click.option("--step-seconds", default=0.25, show_default=True, type=click.FloatRange(0.01, 60), help="Healthy step.")
@click.option("--job", callback=job_name, default="simulated", show_default=True, help="The job's name.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The recording's folder; must be new.")
@json_option
def command(
    ranks: int,
    seconds: int,
    seed: int,
    faults: tuple[str, ...],
    ranks_per_node: int,
    step_seconds: float,
    job: str,
    out: Path,
    as_json: bool,
) -> None:
    """Write the recording of a simulated training job, and labels.json beside it: which faults, whom, when.

    Kinds of fault: slow_compute, gpu_throttle, gpu_memory, gpu_hardware, pcie, network, data_stall, host_contention,
    gc_pause, checkpoint_stall, hang, crash, job_slowdown, telemetry_lost.

    \b
    Example:
      eacgm simulate --ranks 16 --seconds 300 --seed 7 --fault slow_compute@3:120-180 --out recording
      eacgm replay recording
    """  # noqa: D301 - click reads the backspace as: keep these lines
    from dataclasses import replace

    from eacgm.producers.simulation import simulate
    from eacgm.producers.simulation_plan import ClusterPlan, labels, parse_faults
    from eacgm.schemas.recording import RecordingWriter

    plan = ClusterPlan(
        n_ranks=ranks, seconds=seconds, seed=seed, ranks_per_node=ranks_per_node, step_seconds=step_seconds, job=job
    )
    plan = replace(plan, faults=parse_faults(faults, plan))
    told = labels(plan)
    with new_folder(out) as folder, Progress("simulating") as progress:
        with RecordingWriter(folder) as writer:
            for event in simulate(plan):
                writer.write(event)
                if writer.count % 1000 == 0:
                    progress.update(events=writer.count, ranks=ranks)
            events = writer.count
        (folder / "labels.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    if as_json:
        print_json({"out": str(out), "events": events, **told})
        return
    note(f"{out}: {show(events)} events of {show(ranks)} ranks over {show(seconds)} s, seed {seed}")
    for fault in plan.faults:
        note(f"  {fault.kind} on rank {show(fault.ranks)} from {fault.onset_s:g} s to {fault.end_s:g} s")
