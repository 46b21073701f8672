"""The guard: a small process that outlives the demo and cleans up after it, whatever ended it.

It is told on its standard input what there is to undo: ``process PID`` for a process to be woken and ended, ``cgroup
PATH`` for a cgroup to be emptied and removed, ``folder PATH`` for a folder to be removed. When its standard input ends,
because the demo has closed it or has been killed, it undoes all of it and ends. So no rank stays stopped and no cgroup
stays behind, even after ``kill -9``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

#: how long ended processes may take to leave their cgroup
LEAVE_SECONDS = 5.0


def open_process(pid: int) -> int | None:
    """Return a descriptor that means this process and never a later one of the same number; None if it is gone."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def end_process(descriptor: int) -> None:
    """Kill a process; a stopped one dies as well, but its group may need the wake-up first."""
    for sign in (signal.SIGKILL, signal.SIGCONT):
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, sign)
    os.close(descriptor)


def remove_cgroup(path: Path, parent_processes: Path | None = None) -> bool:
    """Move what is left in a cgroup to its parent and remove it; True once it is gone."""
    home = parent_processes or path.parent / "cgroup.procs"
    deadline = time.monotonic() + LEAVE_SECONDS
    while path.exists():
        with contextlib.suppress(OSError):
            for pid in (path / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    home.write_text(pid)
        with contextlib.suppress(OSError):
            path.rmdir()
        if time.monotonic() > deadline:
            break
        if path.exists():
            time.sleep(0.02)
    return not path.exists()


def main() -> None:
    """Collect what there is to undo until the standard input ends, then undo it."""
    # Ctrl-C goes to the whole terminal; the guard must work on after it.
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.SIG_IGN)
    processes: list[int] = []
    cgroups: list[Path] = []
    folders: list[str] = []
    for line in sys.stdin:
        match line.rstrip("\n").split(" ", 1):
            case ["process", pid] if (descriptor := open_process(int(pid))) is not None:
                processes.append(descriptor)
            case ["cgroup", path]:
                cgroups.append(Path(path))
            case ["folder", name]:
                folders.append(name)
    for descriptor in processes:
        end_process(descriptor)
    for path in cgroups:
        remove_cgroup(path)
    for name in folders:
        shutil.rmtree(name, ignore_errors=True)


if __name__ == "__main__":
    main()
