"""What being watched costs a real training step: the demo's job, with and without the agent, by turns.

One job runs throughout; the agent comes and goes beside it, in a process of its own: with its default probes
(``probes``), reading /proc alone (``no probes``), or with every operator of PyTorch besides (``--torch-ops all``).
Every watched turn is compared with the unwatched turns before and after it, so that a slow drift of the machine cancels
out; the median over all turns is reported. The wall time is what
counts; the CPU time per step, which other processes disturb less, shows what probes add in the kernel.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eacgm.demo.interpreters import find
from eacgm.demo.training import TrainingJob
from eacgm.errors import EacgmError, ProbeError

#: the agent's first seconds go to finding and attaching, and are left out
SETTLING_SECONDS = 5.0
#: way of watching -> what ``eacgm.bench.agent`` is told to trace
WAYS = {"probes": 1, "no probes": 0, "probes and all operators": 2}
#: of what ``eacgm.bench.agent`` tells, the figures that belong here
AGENT_FIGURES = ("cpu_percent", "rss_megabytes")


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: the median step time (wall, ms) and the ranks' mean CPU time per step (ms, all ranks together)."""

    step_ms: float
    cpu_ms: float


def run(
    n_turns: int = 4, turn_seconds: float = 10.0, n_ranks: int = 4, python: str | None = None
) -> list[dict[str, Any]]:
    """Return a row for each way of watching, from ``n_turns`` turns of ``turn_seconds`` each.

    ``ratio`` is the watched step time over the unwatched one, the median over the turns; ``lowest`` and ``highest``
    are the extremes; ``cpu_ratio`` is the same of CPU time per step. ``agent_*`` is what the agent itself took. Raises
    ``UnsupportedError`` without torch, ``ProbeError`` where the agent fails.
    """
    with tempfile.TemporaryDirectory(prefix="eacgm-overhead-") as logs:
        arguments = ("--print-every", "1")
        with TrainingJob(find(python), Path(logs), n_ranks=n_ranks, arguments=arguments) as job:
            # the first steps warm caches and allocators
            job.wait_for_step(30, timeout_seconds=120)
            return _alternate(job, n_turns, turn_seconds)


def _alternate(job: TrainingJob, n_turns: int, turn_seconds: float) -> list[dict[str, Any]]:
    pairs: dict[str, list[tuple[Turn, Turn]]] = {way: [] for way in WAYS}
    costs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    before = _turn(job, turn_seconds)
    for _ in range(n_turns):
        for way, trace in WAYS.items():
            watched, cost = _watched_turn(job, turn_seconds, trace)
            after = _turn(job, turn_seconds)
            beside = Turn((before.step_ms + after.step_ms) / 2, (before.cpu_ms + after.cpu_ms) / 2)
            pairs[way].append((watched, beside))
            costs[way].append(cost)
            before = after
    return [_row(way, pairs[way], costs[way]) for way in WAYS]


def _row(way: str, pairs: list[tuple[Turn, Turn]], costs: list[dict[str, Any]]) -> dict[str, Any]:
    ratios = [watched.step_ms / beside.step_ms for watched, beside in pairs]
    cpu_ratios = [watched.cpu_ms / beside.cpu_ms for watched, beside in pairs]
    agent = {f"agent_{name}": float(np.median([cost[name] for cost in costs])) for name in AGENT_FIGURES}
    return {
        "watched": way,
        "turns": len(pairs),
        "step_ms": float(np.median([watched.step_ms for watched, _ in pairs])),
        "ratio": float(np.median(ratios)),
        "lowest": min(ratios),
        "highest": max(ratios),
        "cpu_ratio": float(np.median(cpu_ratios)),
        **agent,
    }


def _turn(job: TrainingJob, seconds: float) -> Turn:
    """Return the coming seconds' turn; raises ``EacgmError`` if there were hardly any steps."""
    n_before, cpu_before = len(job.step_times_ms()), _cpu_seconds(job.pids)
    time.sleep(seconds)
    job.check()
    times, cpu = job.step_times_ms()[n_before:], _cpu_seconds(job.pids) - cpu_before
    if len(times) < 10:
        raise EacgmError(
            f"only {len(times)} steps in {seconds:.0f} s; expected 10 or more: give the turns more seconds"
        )
    # a mean would be ruled by the machine's own hiccups
    return Turn(float(np.median(times)), cpu * 1000.0 / len(times))


def _cpu_seconds(pids: list[int]) -> float:
    """Return user and system time of all ranks so far; what probes add in the kernel is in it."""
    ticks = 0
    for pid in pids:
        told = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(told[11]) + int(told[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _watched_turn(job: TrainingJob, seconds: float, trace: int) -> tuple[Turn, dict[str, Any]]:
    """Return a turn while an agent watches, and what the agent tells of its cost."""
    command = [sys.executable, "-m", "eacgm.bench.agent", job.name, str(seconds + SETTLING_SECONDS), str(trace)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as agent:
        try:
            time.sleep(SETTLING_SECONDS)
            turn = _turn(job, seconds)
            out, said = agent.communicate(timeout=60)
        finally:
            agent.kill()
    if agent.returncode != 0:
        raise ProbeError(f"the agent's process failed: {(said.strip().splitlines() or ['?'])[-1]}")
    return turn, json.loads(out)
