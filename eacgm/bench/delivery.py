"""From an interval's end to its frame and alert on the topics, at real pace; and what encoding and sending cost.

Needs a broker to write to (EACGM_KAFKA_BOOTSTRAP). A simulated job's events are published when they would be, through
an agent's outbox in a process of its own (``python -m eacgm.bench.delivery JOB RANKS SECONDS``), a worker of a group of
its own judges them, and what it writes is read here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from eacgm.errors import BrokerError
from eacgm.events import AlertEvent, Event, FrameEvent
from eacgm.kafka import topics
from eacgm.kafka.backlog import MemoryBacklog
from eacgm.kafka.clients import open_admin, open_consumer, open_producer, reach
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.kafka.outbox import ARRIVAL_MS, Outbox
from eacgm.producers.simulation import simulate
from eacgm.producers.simulation_plan import ClusterPlan, parse_faults
from eacgm.schemas.framing import Framing

#: (ranks, seconds) of the simulated jobs; one rank is slow from two thirds on
SIZES = ((8, 75), (64, 75))
PARTITIONS = 4
PATIENCE_SECONDS = 30.0
#: the simulation begins so long after the publisher's start
LEAD_NS = 2_000_000_000


def run(sizes: Sequence[tuple[int, int]] = SIZES) -> list[dict[str, Any]]:
    """Return one row per size.

    ``frame_*_seconds`` is from a window's end to its frame's arrival (median, 95th percentile), ``alert_seconds`` from
    the end of the window that opened the incident to the alert's arrival; ``publish_cpu_percent`` is of one core, for
    encoding and sending all ranks' messages. Raises ``BrokerError`` where no broker answers or nothing arrives.
    """
    connection = Connection.from_environment()
    return [_measure(connection, *size) for size in sizes]


def _measure(connection: Connection, n_ranks: int, seconds: int) -> dict[str, Any]:
    name = f"bench-delivery-{os.getpid()}-{n_ranks}"
    complaints = Complaints(connection)
    admin = open_admin(connection, complaints)
    reach(admin, complaints)
    topics.create(admin, topics.wanted(PARTITIONS, 1, name))
    consumer = open_consumer(connection, complaints, {"group.id": f"{name}-reader", "auto.offset.reset": "latest"})
    consumer.subscribe([FrameEvent.topic, AlertEvent.topic])
    consumer.consume(1, timeout=5.0)
    worker = subprocess.Popen(
        [sys.executable, "-m", "eacgm", "worker", "--bootstrap", connection.bootstrap, "--group", name]
    )
    publisher = subprocess.Popen(
        [sys.executable, "-m", "eacgm.bench.delivery", name, str(n_ranks), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "EACGM_KAFKA_BOOTSTRAP": connection.bootstrap},
    )
    frames: list[float] = []
    alerts: list[float] = []
    until = time.monotonic() + seconds + PATIENCE_SECONDS
    try:
        while time.monotonic() < until and len(frames) < seconds - 5:
            for message in consumer.consume(100, timeout=0.02):
                now_ns = time.time_ns()
                event = Framing().decode(message.value() or b"")
                if event.job != name:
                    continue
                if isinstance(event, FrameEvent):
                    frames.append((now_ns - event.end_ns) / 1e9)
                elif isinstance(event, AlertEvent) and event.state == "open":
                    alerts.append((now_ns - event.detected_at_ns) / 1e9)
        told = json.loads(publisher.communicate(timeout=60)[0])
    finally:
        consumer.close()
        for process in (worker, publisher):
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    if len(frames) < seconds // 2:
        raise BrokerError(f"{len(frames)} frames of {seconds} arrived; run by hand: eacgm worker")
    # the first frames wait for the worker's start
    steady = np.array(frames[len(frames) // 3 :])
    return {
        "ranks": n_ranks,
        "frames": len(frames),
        "frame_median_seconds": round(float(np.median(steady)), 2),
        "frame_p95_seconds": round(float(np.percentile(steady, 95)), 2),
        "alert_seconds": round(max(alerts), 2) if alerts else None,
        "messages_per_second": round(told["messages_per_second"]),
        "publish_cpu_percent": round(told["cpu_percent"], 2),
    }


def publish(job: str, n_ranks: int, seconds: int, *, healthy: bool = False) -> dict[str, float]:
    """Publish a simulated job's events at their pace; return what that cost this process."""
    plan = ClusterPlan(n_ranks=n_ranks, seconds=seconds, seed=1)
    if not healthy:
        plan = replace(plan, faults=parse_faults([f"slow_compute@3:{seconds * 2 // 3}-{seconds}"], plan))
    events = sorted((replace(event, job=job) for event in simulate(plan)), key=lambda event: event.published_ns)
    connection = Connection.from_environment()
    complaints = Complaints(connection)
    settings = {"linger.ms": 50, "message.timeout.ms": ARRIVAL_MS}
    with Outbox(lambda: open_producer(connection, complaints, settings), Framing(), MemoryBacklog(10**8)) as outbox:
        _shift(events, time.time_ns() // 10**9 * 10**9 + LEAD_NS - min(event.start_ns for event in events))
        time.sleep(1.0)
        began, began_cpu = time.monotonic(), time.process_time()
        for group in _in_time(events):
            for event in group:
                outbox.publish(event)
        took, cpu = time.monotonic() - began, time.process_time() - began_cpu
        outbox.close(20)
    return {"cpu_percent": 100 * cpu / took, "messages_per_second": len(events) / took}


def _shift(events: list[Event], by_ns: int) -> None:
    for event in events:
        event.start_ns += by_ns
        event.end_ns += by_ns
        event.published_ns += by_ns


def _in_time(events: list[Event]) -> Iterator[list[Event]]:
    """Yield the events in groups, each as soon as its time has come."""
    at = 0
    while at < len(events):
        time.sleep(max(events[at].published_ns - time.time_ns(), 0) / 1e9 + 0.01)
        now_ns, begin = time.time_ns(), at
        while at < len(events) and events[at].published_ns <= now_ns:
            at += 1
        yield events[begin:at]


if __name__ == "__main__":
    told = publish(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), healthy="healthy" in sys.argv[4:])
    print(json.dumps(told))
