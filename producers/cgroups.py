"""Control groups: how long a quota kept a process off the CPU, and which container it runs in.

Both hierarchies are read: v2 (``cpu.max``, ``cpu.stat`` in microseconds) and v1 (``cpu.cfs_quota_us``, ``cpu.stat`` in
nanoseconds). Source: the kernel's Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from eacgm.producers.procfs import grown, parse_fields, read_file

_CONTAINER = re.compile(r"(?:^|[/:_-])([0-9a-f]{64})(?:\.scope)?(?=$|/)")


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a hierarchy with the CPU controller is mounted: ``folder`` shows the groups from ``top`` downwards."""

    folder: str
    top: str
    version: int


@lru_cache(maxsize=1024)
def memberships(text: bytes | None) -> Mapping[str, str]:
    r"""Return controller -> group path of a ``/proc/PID/cgroup``; the v2 hierarchy's controller is called "".

    Remembered: it is read in every interval and hardly ever changes.

    >>> memberships(b"4:cpu,cpuacct:/job/rank0\n0::/user.slice\n")
    {'cpu': '/job/rank0', 'cpuacct': '/job/rank0', '': '/user.slice'}
    """
    found: dict[str, str] = {}
    for line in (text or b"").decode("utf-8", "replace").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            found.update(dict.fromkeys(parts[1].split(","), parts[2]))
    return found


def container_of(groups: Mapping[str, str]) -> str | None:
    """Return the container's id (64 hexadecimal digits), None outside of one.

    >>> container_of({"": "/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + "ab" * 32 + ".scope"}) == "ab" * 32
    True
    """
    for path in groups.values():
        ids = _CONTAINER.findall(path)
        if ids:
            # the innermost: a container may run others
            return str(ids[-1])
    return None


def cpu_mounts(mountinfo: bytes | None) -> list[Mount]:
    """Return the mounts that hold CPU groups, from the text of ``/proc/self/mountinfo``."""
    found = []
    for line in (mountinfo or b"").decode("utf-8", "replace").splitlines():
        left, dash, right = line.partition(" - ")
        words, kind = left.split(), right.split()
        if not dash or len(words) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            found.append(Mount(words[4], words[3], 2))
        elif kind[0] == "cgroup" and "cpu" in kind[2].split(","):
            found.append(Mount(words[4], words[3], 1))
    return found


class ThrottleReader:
    """Time for which CPU quotas stopped a process's group or the groups around it, interval by interval.

    The kernel counts per group and CPU: the seconds are those of all processes in the group together, and may exceed
    the interval's length. A group's counter is read once per interval, however many processes are in it.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._mounts = cpu_mounts(read_file(f"{root}/proc/self/mountinfo"))
        self._now: dict[str, float | None] = {}
        self._before: dict[str, float | None] = {}

    def advance(self) -> None:
        """Begin an interval: what was read last becomes what is compared with."""
        self._before, self._now = self._now, {}

    def seconds(self, groups: Mapping[str, str]) -> float | None:
        """Return the seconds since the last reading for a process in these groups (controller -> path).

        0.0 where no group around it has a quota; None where its groups are not to be seen, and in the first interval
        of a group with a quota.
        """
        folders: list[str] = []
        visible = False
        for mount in self._mounts:
            inside = _inside(mount, groups.get("cpu" if mount.version == 1 else ""))
            if inside is None or (mount.version == 2 and "cpu" in groups):
                # with v1's CPU controller in use, v2 has none
                continue
            visible = True
            for folder in _upwards(mount.folder, inside):
                if folder not in self._now:
                    self._now[folder] = self._throttled(folder, mount.version)
                if self._now[folder] is not None:
                    folders.append(folder)
        growths = [grown(self._now[folder], self._before.get(folder)) for folder in folders]
        known = [growth for growth in growths if growth is not None]
        return sum(known, 0.0) if visible and len(known) == len(growths) else None

    def _throttled(self, folder: str, version: int) -> float | None:
        """Return a group's counter in seconds, None if it has and had no quota (reading it would cost a flush)."""
        name, unlimited = ("cpu.max", b"max") if version == 2 else ("cpu.cfs_quota_us", b"-1")
        quota = (read_file(f"{self._root}{folder}/{name}") or unlimited).split()
        if quota[:1] == [unlimited] and self._before.get(folder) is None:
            return None
        fields = parse_fields(read_file(f"{self._root}{folder}/cpu.stat"))
        if version == 2:
            return fields["throttled_usec"] / 1e6 if "throttled_usec" in fields else None
        return fields["throttled_time"] / 1e9 if "throttled_time" in fields else None


def _inside(mount: Mount, path: str | None) -> str | None:
    """Return the group's path below the mount, None if the mount does not show it."""
    if path is None or "/.." in path:
        return None
    if mount.top == "/":
        return path
    if path == mount.top or path.startswith(mount.top.rstrip("/") + "/"):
        return path[len(mount.top.rstrip("/")) :] or "/"
    return None


def _upwards(folder: str, path: str) -> list[str]:
    """Return the folders of a group and of all groups around it, innermost first; the root group has no quota."""
    parts = [part for part in path.split("/") if part]
    return [f"{folder}/{'/'.join(parts[:depth])}" for depth in range(len(parts), 0, -1)]
