"""Memory of a worker and of an agent's outbox over twenty minutes of simulated jobs at real pace.

Needs a broker to write to (EACGM_KAFKA_BOOTSTRAP).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from eacgm.errors import BrokerError
from eacgm.kafka import topics
from eacgm.kafka.clients import open_admin, reach
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection

PARTITIONS = 4
RANKS = (8, 32)


def run(minutes: int = 20) -> list[dict[str, Any]]:
    """Return one row a minute: resident memory of the worker and of both publishers together (MiB).

    Raises ``BrokerError`` where no broker answers or one of the processes ends early.
    """
    connection = Connection.from_environment()
    name = f"bench-soak-{os.getpid()}"
    complaints = Complaints(connection)
    admin = open_admin(connection, complaints)
    reach(admin, complaints)
    topics.create(admin, topics.wanted(PARTITIONS, 1, name))
    environment = {**os.environ, "EACGM_KAFKA_BOOTSTRAP": connection.bootstrap}
    worker = subprocess.Popen(
        [sys.executable, "-m", "eacgm", "worker", "--bootstrap", connection.bootstrap, "--group", name],
        stderr=subprocess.DEVNULL,
    )
    publishers = [
        subprocess.Popen(
            [sys.executable, "-m", "eacgm.bench.delivery", f"{name}-{ranks}", str(ranks), str(60 * minutes + 30)],
            stdout=subprocess.DEVNULL,
            env=environment,
        )
        for ranks in RANKS
    ]
    rows: list[dict[str, Any]] = []
    try:
        for minute in range(1, minutes + 1):
            time.sleep(60)
            if any(process.poll() is not None for process in (worker, *publishers)):
                raise BrokerError("the worker or a publisher has ended early; run by hand: eacgm worker")
            rows.append(
                {
                    "minute": minute,
                    "worker_mib": _mebibytes(worker),
                    "publishers_mib": sum(map(_mebibytes, publishers)),
                }
            )
    finally:
        for process in (worker, *publishers):
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    return rows


def _mebibytes(process: subprocess.Popen[bytes]) -> int:
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGESIZE") / 2**20)
