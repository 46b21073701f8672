"""Rank-windows a second that a worker takes from topics to verdict, and its memory; beside the same events pushed here.

Needs a broker to write to (EACGM_KAFKA_BOOTSTRAP): simulated jobs of their own names go into the usual topics, a worker
of a group of its own reads them, and its CPU seconds and memory are read from /proc.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eacgm.config import Config
from eacgm.errors import BrokerError
from eacgm.events import Event
from eacgm.kafka import topics
from eacgm.kafka.clients import open_admin, open_producer, reach
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.producers.simulation import simulate
from eacgm.producers.simulation_plan import ClusterPlan
from eacgm.schemas import encode
from eacgm.streams.pipeline import Pipeline

#: (ranks, seconds) of the simulated jobs
SIZES = ((8, 300), (64, 200), (256, 150))
#: this much of a job is warm-up: the first refits and the libraries that they load come once
WARM_UP_SHARE = 0.5
PARTITIONS = 4
PATIENCE_SECONDS = 300.0
_TICKS = os.sysconf("SC_CLK_TCK")


def run(sizes: Sequence[tuple[int, int]] = SIZES) -> list[dict[str, Any]]:
    """Return one row per size, measured over the second half of each job.

    ``rank_windows_per_cpu_second`` counts all threads of the worker, ``worker_to_pipeline`` is the ratio of its CPU
    seconds to the pipeline's own, ``..._from_start`` counts from the first window on.

    Raises ``BrokerError`` where no broker answers or the worker ends early.
    """
    connection = Connection.from_environment()
    return [_measure(connection, *size) for size in sizes]


def _measure(connection: Connection, n_ranks: int, seconds: int) -> dict[str, Any]:
    name = f"bench-{os.getpid()}-{n_ranks}"
    complaints = Complaints(connection)
    admin = open_admin(connection, complaints)
    reach(admin, complaints)
    topics.create(admin, topics.wanted(PARTITIONS, 1, name))
    events = [replace(event, job=name) for event in simulate(ClusterPlan(n_ranks=n_ranks, seconds=seconds, seed=1))]
    pipeline_seconds, rank_windows, steady = _push(events)
    producer = open_producer(connection, complaints)
    for event in events:
        producer.produce(event.topic, key=name.encode(), value=encode(event))
        producer.poll(0)
    producer.flush(60)
    cost = _work(connection, name, rank_windows)
    steady_seconds = cost.end_seconds - cost.half_seconds
    return {
        "ranks": n_ranks,
        "rank_windows": rank_windows,
        "messages_per_rank_window": round(len(events) / rank_windows, 2),
        "rank_windows_per_cpu_second": round((rank_windows - cost.half) / steady_seconds),
        "rank_windows_per_cpu_second_from_start": round(rank_windows / (cost.end_seconds - cost.idle_seconds)),
        "pipeline_rank_windows_per_cpu_second": round(steady / pipeline_seconds),
        "worker_to_pipeline": round(steady_seconds / (rank_windows - cost.half) / (pipeline_seconds / steady), 2),
        "memory_mib": round(cost.memory_bytes / 2**20),
    }


def _push(events: list[Event]) -> tuple[float, int, int]:
    """Push all events; return the CPU seconds of the second half, all rank-windows, and those of that half."""
    pipeline = Pipeline(Config())
    middle = int(len(events) * WARM_UP_SHARE)
    for event in events[:middle]:
        pipeline.push(event)
    young, began = pipeline.statistics().rank_windows, time.process_time()
    for event in events[middle:]:
        pipeline.push(event)
    pipeline.finish()
    took, every = time.process_time() - began, pipeline.statistics().rank_windows
    return took, every, every - young


@dataclass(slots=True)
class _Cost:
    """A worker's CPU seconds before the first window, when ``half`` rank-windows were done, and at the end."""

    idle_seconds: float = 0.0
    half: int = 0
    half_seconds: float = 0.0
    end_seconds: float = 0.0
    memory_bytes: int = 0


def _work(connection: Connection, group: str, rank_windows: int) -> _Cost:
    """Run a worker until it has done so many rank-windows; return what that took."""
    command = [sys.executable, "-m", "eacgm", "worker", "--bootstrap", connection.bootstrap, "--group", group]
    command += ["--metrics", "127.0.0.1:0", "--set", "window.idle_ms=2000"]
    worker = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert worker.stderr is not None
        address = next((line.split("/")[2] for line in worker.stderr if line.startswith("metrics at ")), None)
        if address is None:
            raise BrokerError("the worker did not start; run it by hand: eacgm worker")
        cost, until = _Cost(), time.monotonic() + PATIENCE_SECONDS
        for done in _progress(address):
            cost.end_seconds, cost.memory_bytes = _cost(worker.pid)
            if not done:
                cost.idle_seconds = cost.end_seconds
            if not cost.half and done >= rank_windows * WARM_UP_SHARE:
                cost.half, cost.half_seconds = done, cost.end_seconds
            if done >= rank_windows:
                return cost
            if time.monotonic() > until or worker.poll() is not None:
                raise BrokerError(f"the worker did {done:,} of {rank_windows:,} rank-windows and no more")
        raise AssertionError
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(30)


def _progress(address: str) -> Iterator[int]:
    while True:
        time.sleep(0.25)
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        yield next(int(float(line.split()[1])) for line in lines if line.startswith("eacgm_rank_windows_total "))


def _cost(pid: int) -> tuple[float, int]:
    """Return a process's CPU seconds and resident bytes so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[21]) * os.sysconf("SC_PAGESIZE")
