"""Workers of one group on a real broker, and what they write, for tests."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from eacgm.config import Config
from eacgm.events import AlertEvent, DeadLetterEvent, Event, FrameEvent
from eacgm.kafka.clients import open_admin, open_consumer, open_producer
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.kafka.topics import create, wanted
from eacgm.schemas import decode, encode
from eacgm.streams.replay import replay

PARTITIONS = 4
OUTPUTS = (FrameEvent.topic, AlertEvent.topic, DeadLetterEvent.topic)


class Said:
    """What was written of one job: frames by their start and alerts by their id, the last of equals."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.frames: dict[int, FrameEvent] = {}
        self.alerts: dict[str, AlertEvent] = {}
        for event in events:
            self.see(event)

    def see(self, event: Event) -> None:
        if isinstance(event, FrameEvent):
            self.frames[event.start_ns] = event
        elif isinstance(event, AlertEvent):
            self.alerts[event.id] = event

    def assert_equals(self, other: "Said") -> None:
        assert {id: alert.summary for id, alert in self.alerts.items()} == {
            id: alert.summary for id, alert in other.alerts.items()
        }
        assert self.frames.keys() == other.frames.keys()
        for start_ns, frame in self.frames.items():
            assert frame.sequence == other.frames[start_ns].sequence
            np.testing.assert_array_equal(frame.values, other.frames[start_ns].values)


def renamed(events: Iterable[Event], job: str) -> list[Event]:
    return [replace(event, job=job) for event in events]


def replayed(events: Iterable[Event]) -> Said:
    return Said(replay(events, Config()))


class Fleet:
    """Topics on a broker, a producer, and the workers that were started."""

    def __init__(
        self, connection: Connection, folder: Path, environment: dict[str, str] | None = None, group: str = "workers"
    ) -> None:
        self.connection, self.environment = connection, {**os.environ, **(environment or {})}
        self.group, self.folder = group, folder
        #: where workers are started: nothing may be left there
        self.start_folder = folder / "start"
        self.start_folder.mkdir(exist_ok=True)
        self.workers: list[subprocess.Popen[bytes]] = []
        self.complaints = Complaints(self.connection)
        create(open_admin(self.connection, self.complaints), wanted(PARTITIONS, 1, group))
        self.producer = open_producer(self.connection, self.complaints)
        self.consumer = open_consumer(
            self.connection, self.complaints, {"group.id": "test-reader", "auto.offset.reset": "earliest"}
        )
        self.consumer.subscribe(list(OUTPUTS))
        self.said: dict[str, Said] = {}
        self.dead: list[DeadLetterEvent] = []

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "eacgm", "worker", "--bootstrap", self.connection.bootstrap]
        with (self.folder / f"worker-{len(self.workers)}.log").open("wb") as log:
            command += ["--group", self.group, *arguments]
            worker = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, cwd=self.start_folder)
        self.workers.append(worker)
        return worker

    def log(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("worker-*.log")))

    def publish(self, events: Iterable[Event], speed: float | None = None) -> Iterator[float]:
        """Produce events, at ``speed`` times their own pace if given, and yield the seconds passed after each."""
        began, first_ns = time.monotonic(), None
        for event in events:
            first_ns = event.published_ns if first_ns is None else first_ns
            while speed and (event.published_ns - first_ns) / 1e9 / speed > time.monotonic() - began:
                self.producer.poll(0.005)
            self.produce(event.topic, event.job.encode(), encode(event))
            yield time.monotonic() - began
        assert self.producer.flush(30) == 0

    def produce(self, topic: str, key: bytes | None, value: bytes, partition: int | None = None) -> None:
        where = {} if partition is None else {"partition": partition}
        self.producer.produce(topic, key=key, value=value, **where)
        self.producer.poll(0)

    def read(self, seconds: float = 1.0) -> None:
        """Take note of what the workers wrote."""
        for message in self.consumer.consume(500, timeout=seconds):
            assert message.error() is None, message.error()
            event = decode(message.value() or b"")
            if isinstance(event, DeadLetterEvent):
                self.dead.append(event)
            else:
                self.said.setdefault(event.job, Said()).see(event)

    def read_until(self, done, seconds: float = 120.0) -> None:
        until = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < until, f"workers did not finish; they say: {self.log()[-3000:]}"
            self.read()

    def stop(self) -> list[int]:
        """End all workers in order; return their exit statuses."""
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGTERM)
        try:
            return [worker.wait(30) for worker in self.workers]
        finally:
            for worker in self.workers:
                if worker.poll() is None:
                    worker.kill()
            self.consumer.close()


def fetch(address: str, path: str) -> str:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
        return str(answer.read().decode())
