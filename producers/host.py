"""What /proc and the control groups tell of processes and the node, by interval and the names of ``HostEvent``."""

from __future__ import annotations

from typing import Any

from eacgm.producers.cgroups import ThrottleReader
from eacgm.producers.infiniband import PortReader
from eacgm.producers.messages import Readings
from eacgm.producers.node import NodeReading, node_changes, read_node
from eacgm.producers.processes import Process
from eacgm.producers.procfs import ProcessReading, changes, delay_accounting, read_process


class HostReader:
    """Remembers the last interval's readings and tells what happened since."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._scheduling = False
        self._delays = delay_accounting(root)
        self._throttle = ThrottleReader(root)
        self._processes: dict[int, ProcessReading] = {}
        self._node: NodeReading | None = None
        self._ports = PortReader(root)
        self._node_read_ns = 0

    def advance(self, *, scheduling: bool) -> None:
        """Begin an interval.

        ``scheduling``: also read the run-queue wait from /proc, where the kernel tracer does not measure it.
        """
        self._scheduling = scheduling
        self._throttle.advance()

    def process(self, process: Process) -> Readings:
        """Return a process's readings; counters are None in its first interval."""
        now = read_process(self._root, process.stat, delays=self._delays, scheduling=self._scheduling)
        before = self._processes.get(process.pid)
        self._processes[process.pid] = now
        return {
            **changes(now, before),
            "throttled_seconds": self._throttle.seconds(process.groups),
            "rss_bytes": now.rss_bytes,
            "threads": now.threads,
            "stopped": now.stopped,
        }

    def forget(self, pid: int) -> None:
        """Drop what is remembered of a process that has ended."""
        self._processes.pop(pid, None)

    def node(self, monotonic_ns: int) -> dict[str, Any]:
        """Return the node's readings; ``monotonic_ns`` is when they are taken."""
        now, ports = read_node(self._root), self._ports.read()
        elapsed_seconds = (monotonic_ns - self._node_read_ns) / 1e9
        found = node_changes(now, self._node, elapsed_seconds)
        self._node, self._node_read_ns = now, monotonic_ns
        return {**found, **ports.columns()}
