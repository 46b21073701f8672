"""Processes that come and go, as the programs tell it, and with which code they went."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from eacgm.producers import kernel
from eacgm.producers.observation import Lifecycle
from eacgm.producers.ring import Ring

_KINDS = {1: "fork", 2: "exec", 3: "exit"}
#: collections that an exit's report may wait for its code
_EXIT_ATTEMPTS = 3


@dataclass(slots=True)
class _PendingExit:
    pid: int
    time_ns: int
    attempts: int = 0


class Lifecycles:
    """The records of one ring; an exit waits a few collections for its code, which the kernel tells elsewhere."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._pending: list[_PendingExit] = []

    def collect(self, offset_ns: int, pidfds: Mapping[int, int]) -> list[Lifecycle]:
        """Return what happened since the last collection, exits after the rest.

        ``offset_ns`` turns the programs' times into UTC; ``pidfds`` are the watched processes' descriptors by pid.
        """
        found = []
        for record in self._ring.drain():
            kind, pid, time_ns = _KINDS[int(record["kind"])], int(record["pid"]), int(record["time_ns"]) + offset_ns
            if kind == "exit":
                self._pending.append(_PendingExit(pid, time_ns))
            else:
                found.append(Lifecycle(kind=kind, pid=pid, time_ns=time_ns, parent=int(record["parent"])))
        waiting = []
        for exit_ in self._pending:
            pidfd = pidfds.get(exit_.pid)
            code = None if pidfd is None else exit_code(exit_.pid, pidfd)
            exit_.attempts += 1
            if code is None and pidfd is not None and exit_.attempts < _EXIT_ATTEMPTS:
                waiting.append(exit_)
            else:
                found.append(Lifecycle(kind="exit", pid=exit_.pid, time_ns=exit_.time_ns, exit_code=code))
        self._pending = waiting
        return found


def exit_code(pid: int, pidfd: int) -> int | None:
    """Return an ended process's exit code or minus its signal: from /proc until it is reaped, then from its pidfd."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            values = file.read().rpartition(")")[2].split()
        if values[0] in "ZX":
            return os.waitstatus_to_exitcode(int(values[49]))
    except (OSError, IndexError):
        pass
    status = kernel.exit_status(pidfd)
    return None if status is None else os.waitstatus_to_exitcode(status)
