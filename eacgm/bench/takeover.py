"""Two workers, one of which is killed again and again: how long its jobs stand still, and whether anything is missing.

Needs a broker to write to (EACGM_KAFKA_BOOTSTRAP). Healthy simulated jobs are published at real pace; after each kill
-9 the killed worker is started anew, and the next kill comes at a random moment after that, also while the group still
finds itself or a mixture is refitted.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from typing import Any

import numpy as np

from eacgm.errors import BrokerError
from eacgm.events import AlertEvent, FrameEvent
from eacgm.kafka import topics
from eacgm.kafka.clients import open_admin, open_consumer, reach
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.schemas.framing import Framing

PARTITIONS = 6
RANKS = 8
#: a kill comes so long after the one before, at random
PAUSE_SECONDS = (4.0, 22.0)
WARM_UP_SECONDS = 30.0
PATIENCE_SECONDS = 60.0
#: jobs are published for so long after each kill; more would be a failure
LONGEST_SECONDS = 15.0


def run(kills: int = 20, jobs: int = 3, seed: int = 1) -> list[dict[str, Any]]:
    """Return one row: seconds from a kill to the next frame of every job, and what went wrong with frames and alerts.

    ``frames_missing`` are windows without a frame, ``frames_changed`` frames that were written twice and differ.

    Raises ``BrokerError`` where no broker answers or nothing arrives.
    """
    connection = Connection.from_environment()
    chance = random.Random(seed)
    pauses = [chance.uniform(*PAUSE_SECONDS) for _ in range(kills)]
    seconds = int(WARM_UP_SECONDS + sum(pauses) + kills * LONGEST_SECONDS)
    return [Takeover(connection, jobs, seconds).run(pauses, chance)]


class Takeover:
    """The jobs, the two workers, and what they write."""

    def __init__(self, connection: Connection, n_jobs: int, seconds: int) -> None:
        self._connection = connection
        self._group = f"bench-takeover-{os.getpid()}"
        self._seconds = seconds
        self._jobs = [f"{self._group}-{number}" for number in range(n_jobs)]
        #: by job and window: what its frame held
        self._frames: dict[str, dict[int, bytes]] = {job: {} for job in self._jobs}
        self._changed = 0
        self._newest_ns = dict.fromkeys(self._jobs, 0)
        self._false = 0
        complaints = Complaints(connection)
        admin = open_admin(connection, complaints)
        reach(admin, complaints)
        topics.create(admin, topics.wanted(PARTITIONS, 1, self._group))
        self._consumer = open_consumer(
            connection, complaints, {"group.id": f"{self._group}-reader", "auto.offset.reset": "latest"}
        )
        self._consumer.subscribe([FrameEvent.topic, AlertEvent.topic])
        self._consumer.consume(1, timeout=5.0)

    def run(self, pauses: list[float], chance: random.Random) -> dict[str, Any]:
        """Kill after each pause; return the row."""
        workers = [self._worker(), self._worker()]
        publishers = [self._publisher(job) for job in self._jobs]
        standstills: list[float] = []
        try:
            self._read(WARM_UP_SECONDS)
            for pause in pauses:
                self._read(pause)
                victim = chance.randrange(2)
                workers[victim].kill()
                workers[victim].wait()
                killed_ns = time.time_ns()
                workers[victim] = self._worker()
                standstills.append(self._standstill(killed_ns))
            self._read(10.0)
        finally:
            for process in (*workers, *publishers):
                process.kill()
                process.wait()
            self._consumer.close()
        return {
            "kills": len(standstills),
            "median_seconds": round(float(np.median(standstills)), 1),
            "longest_seconds": round(max(standstills), 1),
            "frames": sum(map(len, self._frames.values())),
            "frames_missing": sum(map(_missing, self._frames.values())),
            "frames_changed": self._changed,
            "false_alerts": self._false,
        }

    def _worker(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "eacgm", "worker", "--bootstrap", self._connection.bootstrap]
        return subprocess.Popen([*command, "--group", self._group], stderr=subprocess.DEVNULL)

    def _publisher(self, job: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "eacgm.bench.delivery", job, str(RANKS), str(self._seconds), "healthy"]
        environment = {**os.environ, "EACGM_KAFKA_BOOTSTRAP": self._connection.bootstrap}
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)

    def _standstill(self, killed_ns: int) -> float:
        """Return the seconds until every job has a frame of a window that ended after the kill."""
        self._until(lambda: all(newest_ns > killed_ns for newest_ns in self._newest_ns.values()))
        return (time.time_ns() - killed_ns) / 1e9

    def _until(self, done: Any) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while not done():
            if time.monotonic() > until:
                raise BrokerError("workers do not go on; run by hand: eacgm worker")
            self._read(0.2)

    def _read(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for message in self._consumer.consume(100, timeout=min(left, 0.2)):
                event = Framing().decode(message.value() or b"")
                if event.job not in self._frames:
                    continue
                if isinstance(event, FrameEvent):
                    held = event.values.tobytes() + repr((event.sequence, event.present, event.late)).encode()
                    self._changed += self._frames[event.job].setdefault(event.start_ns, held) != held
                    self._newest_ns[event.job] = max(self._newest_ns[event.job], event.end_ns)
                else:
                    self._false += 1


def _missing(frames: dict[int, bytes]) -> int:
    """Return how many windows of a second there are between the first and the last frame that have none."""
    return (max(frames) - min(frames)) // 1_000_000_000 + 1 - len(frames) if frames else 0
