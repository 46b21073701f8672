"""What the agent costs beside a small real load: CPU share, memory, events, late intervals.

The load is real processes: ranks that ask for 10,000 traced calls a second each (garbage collections), with a worker
each; ``calls_per_second`` is what came of it, of all ranks. The agent runs in a process of its own (``python -m
eacgm.bench.agent JOB SECONDS TRACE``), encodes what it publishes, and tells what it cost; TRACE is 0 without probes, 1
with them, 2 with every operator of PyTorch besides.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from eacgm.errors import ProbeError
from eacgm.events import CallsEvent, Event

_RANK = """
import gc, os, time
if os.fork() == 0:
    while True:
        time.sleep(0.01)
due = time.monotonic()
while True:
    for _ in range(200):
        gc.collect(0)
    due = max(due + 0.02, time.monotonic() - 0.1)
    time.sleep(max(due - time.monotonic(), 0))
"""
#: the first intervals find and attach; they are told apart from the steady state
_SETTLING_SECONDS = 4.0


def run(ranks: int = 8, seconds: float = 15.0) -> list[dict[str, Any]]:
    """Return a row with tracing and one without, beside so many ranks with a worker each.

    ``cpu_percent`` is of one core in the steady state; ``events_per_second`` counts messages. Raises ``ProbeError``
    where the agent's process fails.
    """
    job = f"bench-{os.getpid()}"
    load = [_start(job, rank, ranks) for rank in range(ranks)]
    try:
        return [{"ranks": ranks, "workers": ranks} | _measure(job, seconds, trace) for trace in (True, False)]
    finally:
        for process in load:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _start(job: str, rank: int, ranks: int) -> subprocess.Popen[bytes]:
    environ = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "TORCHELASTIC_RUN_ID": job}
    return subprocess.Popen([sys.executable, "-c", _RANK], env=environ, start_new_session=True)


def _measure(job: str, seconds: float, trace: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "eacgm.bench.agent", job, str(seconds), str(int(trace))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120, check=False)
    if done.returncode != 0:
        raise ProbeError(f"the agent's process failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def measure(job: str, seconds: float, trace: bool, *, torch_ops: bool = False) -> dict[str, Any]:
    """Run an agent for so long in this process; return what it cost. No budget: what is measured stays attached."""
    from eacgm.producers.agent import Agent
    from eacgm.producers.probes import DEFAULT_PROBES, TORCH_OPS
    from eacgm.schemas import encode

    lengths: dict[int, int] = {}
    sizes: list[int] = []
    calls: list[int] = []

    def publish(event: Event) -> None:
        sizes.append(len(encode(event)))
        if isinstance(event, CallsEvent):
            calls.append(int(event.count.sum()))
        lengths[event.end_ns] = event.end_ns - event.start_ns

    begun = time.monotonic()
    probes = (*DEFAULT_PROBES, TORCH_OPS) if torch_ops else DEFAULT_PROBES
    agent = Agent(publish, only_jobs=[job], trace=trace, probes=probes, cpu_percent=None)
    start_seconds = time.monotonic() - begun
    stop = threading.Event()
    thread = threading.Thread(target=agent.run, args=(stop,))
    thread.start()
    time.sleep(_SETTLING_SECONDS)
    agent.cost()
    settled, settled_calls, settled_at = len(sizes), len(calls), time.monotonic()
    time.sleep(seconds)
    cost = agent.cost()
    measured_seconds = time.monotonic() - settled_at
    rate, call_rate = (len(sizes) - settled) / measured_seconds, sum(calls[settled_calls:]) / measured_seconds
    tracing = agent.failure or "on"
    stop.set()
    thread.join()
    intervals = list(lengths.values())[int(_SETTLING_SECONDS) :]
    return {
        "tracing": tracing,
        "cpu_percent": 100 * cost.cpu_ratio,
        "rss_megabytes": None if cost.rss_bytes is None else cost.rss_bytes / 1e6,
        "start_seconds": start_seconds,
        "events_per_second": rate,
        "calls_per_second": call_rate if trace else None,
        "bytes_per_event": sum(sizes) / max(len(sizes), 1),
        "late_intervals": sum(length > 1_000_000_000 for length in intervals),
        "seconds": seconds,
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], float(sys.argv[2]), sys.argv[3] != "0", torch_ops=sys.argv[3] == "2")))
