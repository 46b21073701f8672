"""What the agent itself costs the node."""

from __future__ import annotations

import resource
import threading
import time
from dataclasses import dataclass

from eacgm.producers.procfs import PAGE_BYTES, read_file


@dataclass(frozen=True, slots=True)
class AgentCost:
    """The agent's process: CPU seconds since it began to measure, children included; the share of one core; memory.

    ``cpu_ratio`` is over the time since the reading before this one (1.0 is one core busy); ``rss_bytes`` is None where
    /proc does not tell.
    """

    cpu_seconds: float
    cpu_ratio: float
    rss_bytes: float | None


class CostMeter:
    """Reads the process that it lives in; the agent's only if nothing else runs there."""

    def __init__(self) -> None:
        self._begun_seconds = self._before_seconds = _cpu_seconds()
        self._read_at = time.monotonic()

    def read(self) -> AgentCost:
        """Return the cost so far, and the CPU share since the last reading."""
        cpu, now = _cpu_seconds(), time.monotonic()
        share = (cpu - self._before_seconds) / max(now - self._read_at, 1e-9)
        self._before_seconds, self._read_at = cpu, now
        pages = (read_file("/proc/self/statm") or b"").split()
        return AgentCost(
            cpu_seconds=cpu - self._begun_seconds,
            cpu_ratio=share,
            rss_bytes=float(int(pages[1]) * PAGE_BYTES) if len(pages) > 1 else None,
        )


class ThreadCost:
    """Reads the CPU seconds that the calling thread takes, from reading to reading."""

    def __init__(self) -> None:
        self._before: tuple[int, float] | None = None

    def read(self) -> float | None:
        """Return the seconds since the last reading, None where this thread has none yet."""
        before, self._before = self._before, (threading.get_ident(), time.thread_time())
        return self._before[1] - before[1] if before is not None and before[0] == self._before[0] else None


def _cpu_seconds() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
