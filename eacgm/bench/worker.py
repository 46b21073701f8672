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
from dataclasses import replace
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
SIZES = ((8, 240), (64, 120), (256, 60))
PARTITIONS = 4
PATIENCE_SECONDS = 300.0
_TICKS = os.sysconf("SC_CLK_TCK")


def run(sizes: Sequence[tuple[int, int]] = SIZES) -> list[dict[str, Any]]:
    """Return one row per size; ``worker_to_pipeline`` is the ratio of CPU seconds, the worker's to the pipeline's.

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
    pipeline_seconds, rank_windows = _push(events)
    producer = open_producer(connection, complaints)
    for event in events:
        producer.produce(event.topic, key=name.encode(), value=encode(event))
        producer.poll(0)
    producer.flush(60)
    idle, cpu_seconds, memory_bytes = _work(connection, name, rank_windows)
    return {
        "ranks": n_ranks,
        "rank_windows": rank_windows,
        "messages_per_rank_window": round(len(events) / rank_windows, 2),
        "rank_windows_per_cpu_second": round(rank_windows / (cpu_seconds - idle)),
        "pipeline_rank_windows_per_cpu_second": round(rank_windows / pipeline_seconds),
        "worker_to_pipeline": round((cpu_seconds - idle) / pipeline_seconds, 2),
        "memory_mib": round(memory_bytes / 2**20),
    }


def _push(events: list[Event]) -> tuple[float, int]:
    pipeline, began = Pipeline(Config()), time.process_time()
    for event in events:
        pipeline.push(event)
    pipeline.finish()
    return time.process_time() - began, pipeline.statistics().rank_windows


def _work(connection: Connection, group: str, rank_windows: int) -> tuple[float, float, int]:
    """Run a worker until it has done so many rank-windows; return its CPU seconds before the first and at the end."""
    command = [sys.executable, "-m", "eacgm", "worker", "--bootstrap", connection.bootstrap, "--group", group]
    command += ["--metrics", "127.0.0.1:0", "--set", "window.idle_ms=2000"]
    worker = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert worker.stderr is not None
        address = next((line.split("/")[2] for line in worker.stderr if line.startswith("metrics at ")), None)
        if address is None:
            raise BrokerError("the worker did not start; run it by hand: eacgm worker")
        idle, until = 0.0, time.monotonic() + PATIENCE_SECONDS
        for done in _progress(address):
            cpu_seconds, memory_bytes = _cost(worker.pid)
            if not done:
                idle = cpu_seconds
            if done >= rank_windows:
                return idle, cpu_seconds, memory_bytes
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
