"""A CPU quota for some processes, by a cgroup of version 1 or 2."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from eacgm.demo.guard import remove_cgroup
from eacgm.errors import UnsupportedError

#: the kernel's default period, in microseconds
PERIOD_US = 100_000


def cpu_hierarchy(root: Path = Path("/")) -> tuple[int, Path]:
    """Return the cgroup version (1 or 2) that controls the CPU, and where it is mounted.

    Raises ``UnsupportedError`` if neither does.
    """
    for line in (root / "proc/self/mounts").read_text().splitlines():
        _, mount_point, kind, options, *_ = line.split(" ")
        place = root / mount_point.lstrip("/")
        if kind == "cgroup" and "cpu" in options.split(","):
            return 1, place
        if kind == "cgroup2" and "cpu" in _words(place / "cgroup.controllers"):
            return 2, place
    raise UnsupportedError("no cgroup hierarchy controls the CPU here; expected cgroup v1 'cpu' or cgroup v2")


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


class CpuQuota:
    """Holds processes to ``ratio`` of one CPU from ``start`` to ``stop``.

    ``announce`` is told the cgroup's path before it is made. ``start`` raises ``UnsupportedError`` where cgroups cannot
    be written.
    """

    def __init__(self, pids: list[int], ratio: float, announce: Callable[[Path], None], root: Path = Path("/")) -> None:
        self._pids = pids
        self._quota_us = max(1000, round(ratio * PERIOD_US))
        self._announce = announce
        self._root = root
        self._group: Path | None = None
        self._homes: dict[int, Path] = {}

    def start(self) -> None:
        """Make the cgroup and move the processes into it."""
        version, mount = cpu_hierarchy(self._root)
        group = mount / f"eacgm-demo-{os.getpid()}"
        try:
            self._homes = {pid: mount / self._group_of(pid, version) / "cgroup.procs" for pid in self._pids}
            if version == 2 and "cpu" not in _words(mount / "cgroup.subtree_control"):
                (mount / "cgroup.subtree_control").write_text("+cpu")
            self._announce(group)
            group.mkdir()
            self._group = group
            if version == 2:
                (group / "cpu.max").write_text(f"{self._quota_us} {PERIOD_US}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(str(self._quota_us))
            for pid in self._pids:
                (group / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            self.stop()
            raise UnsupportedError(f"cgroup {group} cannot be made ({error.strerror})") from None

    def _group_of(self, pid: int, version: int) -> str:
        """Return the process's cgroup in the CPU hierarchy, relative to its mount."""
        for line in (self._root / "proc" / str(pid) / "cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if (version == 2 and number == "0") or (version == 1 and "cpu" in controllers.split(",")):
                return path.lstrip("/")
        return ""

    def stop(self) -> None:
        """Move the processes back and remove the cgroup; harmless if there is none."""
        if self._group is None:
            return
        for pid, home in self._homes.items():
            try:
                home.write_text(str(pid))
            except OSError:
                # The process or its old cgroup is gone; what remains is moved to the parent below.
                continue
        if remove_cgroup(self._group):
            self._group = None
