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
from itertools import islice
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

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

#: (ranks, seconds) of the simulated jobs: long enough that a worker has seconds of work with each
SIZES = ((8, 1800), (64, 900), (256, 600))
#: this much of a job is warm-up: the first refits and the libraries that they load come once
WARM_UP_SHARE = 0.5
#: from here on a job is its tail: windows that close only once nothing has come for a while
TAIL_SHARE = 0.97
PARTITIONS = 4
PATIENCE_SECONDS = 300.0
POLL_SECONDS = 0.1
#: events that are pushed and produced in one go
CHUNK = 2000
_TICKS = os.sysconf("SC_CLK_TCK")


def run(sizes: Sequence[tuple[int, int]] = SIZES) -> list[dict[str, Any]]:
    """Return one row per size, measured over the second half of each job, without its last 3 %.

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
    events = (replace(event, job=name) for event in simulate(ClusterPlan(n_ranks=n_ranks, seconds=seconds, seed=1)))
    pushed = _push(events, open_producer(connection, complaints), seconds)
    samples = _work(connection, name, pushed.rank_windows)
    half = next(sample for sample in samples if sample.done >= pushed.rank_windows * WARM_UP_SHARE)
    tail = [sample for sample in samples if sample.done <= pushed.rank_windows * TAIL_SHARE][-1]
    if tail.done - half.done < pushed.steady * 0.5:
        raise BrokerError(f"the worker did {n_ranks} ranks too fast to be measured; a longer job is needed")
    idle = [sample for sample in samples if not sample.done]
    took = (tail.cpu_seconds - half.cpu_seconds) / (tail.done - half.done)
    return {
        "ranks": n_ranks,
        "rank_windows": pushed.rank_windows,
        "messages_per_rank_window": round(pushed.messages / pushed.rank_windows, 2),
        "rank_windows_per_cpu_second": round(1 / took),
        "rank_windows_per_second": round((tail.done - half.done) / (tail.at_seconds - half.at_seconds)),
        "rank_windows_per_cpu_second_from_start": round(
            tail.done / (tail.cpu_seconds - (idle[-1].cpu_seconds if idle else 0.0))
        ),
        "pipeline_rank_windows_per_cpu_second": round(pushed.steady / pushed.steady_seconds),
        "worker_to_pipeline": round(took / (pushed.steady_seconds / pushed.steady), 2),
        "memory_mib": round(max(sample.memory_bytes for sample in samples) / 2**20),
    }


@dataclass(slots=True)
class _Pushed:
    """Messages and rank-windows of a job, those of its second half, and the CPU seconds a pipeline took for that."""

    messages: int = 0
    rank_windows: int = 0
    steady: int = 0
    steady_seconds: float = 0.0


def _push(events: Iterator[Event], producer: Producer, seconds: int) -> _Pushed:
    """Push a job of so many seconds into a pipeline, and write it to its topics."""
    pipeline, pushed, young = Pipeline(Config()), _Pushed(), 0
    first_ns = half_ns = 0
    while chunk := list(islice(events, CHUNK)):
        first_ns = first_ns or chunk[0].end_ns
        half_ns = first_ns + int(seconds * WARM_UP_SHARE * 1e9)
        steady = chunk[0].end_ns >= half_ns
        if not steady:
            young = pipeline.statistics().rank_windows
        began = time.process_time()
        for event in chunk:
            pipeline.push(event)
        pushed.steady_seconds += (time.process_time() - began) * steady
        pushed.messages += len(chunk)
        for event in chunk:
            _produce(producer, event)
        # the producer's threads must not work while the pipeline's seconds, those of its refits too, are counted
        producer.flush(60)
    began = time.process_time()
    pipeline.finish()
    pushed.steady_seconds += time.process_time() - began
    pushed.rank_windows = pipeline.statistics().rank_windows
    pushed.steady = pushed.rank_windows - young
    return pushed


def _produce(producer: Producer, event: Event) -> None:
    while True:
        try:
            producer.produce(event.topic, key=event.job.encode(), value=encode(event))
            producer.poll(0)
            return
        except BufferError:
            producer.poll(0.1)


@dataclass(frozen=True, slots=True)
class _Sample:
    """What a worker had done and used at one moment: rank-windows, seconds, CPU seconds, resident bytes."""

    done: int
    at_seconds: float
    cpu_seconds: float
    memory_bytes: int


def _work(connection: Connection, group: str, rank_windows: int) -> list[_Sample]:
    """Run a worker until it has done so many rank-windows; return what was seen of it on the way."""
    command = [sys.executable, "-m", "eacgm", "worker", "--bootstrap", connection.bootstrap, "--group", group]
    command += ["--metrics", "127.0.0.1:0", "--set", "window.idle_ms=2000"]
    worker = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert worker.stderr is not None
        address = next((line.split("/")[2] for line in worker.stderr if line.startswith("metrics at ")), None)
        if address is None:
            raise BrokerError("the worker did not start; run it by hand: eacgm worker")
        samples, until = [_sample(worker.pid, address)], time.monotonic() + PATIENCE_SECONDS
        while samples[-1].done < rank_windows:
            if time.monotonic() > until or worker.poll() is not None:
                raise BrokerError(f"the worker did {samples[-1].done:,} of {rank_windows:,} rank-windows and no more")
            time.sleep(POLL_SECONDS)
            samples.append(_sample(worker.pid, address))
        return samples
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(30)


def _sample(pid: int, address: str) -> _Sample:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    done = next(int(float(line.split()[1])) for line in lines if line.startswith("eacgm_rank_windows_total "))
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu_seconds = (int(fields[11]) + int(fields[12])) / _TICKS
    return _Sample(done, time.monotonic(), cpu_seconds, int(fields[21]) * os.sysconf("SC_PAGESIZE"))
