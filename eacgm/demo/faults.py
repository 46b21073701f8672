"""The faults of the demo, planted from outside the job, each undone by ``stop``."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from eacgm.demo.quota import CpuQuota
from eacgm.errors import UnsupportedError

KINDS = ("slow", "pause", "data", "none")
#: the causes that are right for each fault (``eacgm.streams.diagnose``); none: no incident at all
RIGHT_CAUSES = {"slow": ("slow_compute",), "pause": ("hang",), "data": ("data_stall",), "none": ()}


class Fault(Protocol):
    """Something that can be planted and undone; ``stop`` may be called at any time, and again."""

    @property
    def description(self) -> str:
        """What is done to the rank, in plain words."""

    def start(self) -> None:
        """Plant the fault; raises ``EacgmError`` if it cannot be."""

    def stop(self) -> None:
        """Undo it."""


def send_signal(pid: int, sign: signal.Signals) -> None:
    """Send a signal; a process that is gone needs none."""
    try:
        os.kill(pid, sign)
    except ProcessLookupError:
        return


class DutyCycle:
    """Lets a process run for ``ratio`` of the time by stopping and waking it ten times a second."""

    def __init__(self, pid: int, ratio: float, period_seconds: float = 0.1) -> None:
        self._pid = pid
        self._run_seconds = ratio * period_seconds
        self._stop_seconds = period_seconds - self._run_seconds
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to stop and wake the process."""
        self._thread = threading.Thread(target=self._cycle, name="duty-cycle", daemon=True)
        self._thread.start()

    def _cycle(self) -> None:
        try:
            while not self._ended.is_set():
                send_signal(self._pid, signal.SIGSTOP)
                self._ended.wait(self._stop_seconds)
                send_signal(self._pid, signal.SIGCONT)
                self._ended.wait(self._run_seconds)
        finally:
            send_signal(self._pid, signal.SIGCONT)

    def stop(self) -> None:
        """Leave the process running."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        send_signal(self._pid, signal.SIGCONT)


class Slow:
    """Holds one rank to a fraction of a CPU: by a cgroup's quota, or where that cannot be, by a duty cycle."""

    def __init__(self, pid: int, ratio: float, announce: Callable[[Path], None], root: Path = Path("/")) -> None:
        self._ratio = ratio
        self._quota = CpuQuota([pid], ratio, announce, root)
        self._duty_cycle = DutyCycle(pid, ratio)
        self._means = "a CPU quota"

    @property
    def description(self) -> str:
        """What is done to the rank, in plain words."""
        return f"held to {self._ratio:.0%} of one CPU by {self._means}"

    def start(self) -> None:
        """Set the quota, or begin the duty cycle."""
        try:
            self._quota.start()
        except UnsupportedError:
            self._means = "signals that stop and wake it"
            self._duty_cycle.start()

    def stop(self) -> None:
        """Lift whichever of the two holds."""
        self._quota.stop()
        self._duty_cycle.stop()


class Pause:
    """Stops one rank (SIGSTOP) until ``stop`` wakes it (SIGCONT)."""

    description = "stopped by SIGSTOP"

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def start(self) -> None:
        """Stop the process."""
        send_signal(self._pid, signal.SIGSTOP)

    def stop(self) -> None:
        """Wake the process."""
        send_signal(self._pid, signal.SIGCONT)


class SlowData:
    """Makes every batch of one rank late; ``delay`` is told the seconds."""

    def __init__(self, delay: Callable[[float], None], seconds: float) -> None:
        self._delay, self._seconds = delay, seconds

    @property
    def description(self) -> str:
        """What is done to the rank, in plain words."""
        return f"given every batch {self._seconds * 1000:.0f} ms late by its data source"

    def start(self) -> None:
        """Begin to delay."""
        self._delay(self._seconds)

    def stop(self) -> None:
        """Serve at once again."""
        self._delay(0.0)
