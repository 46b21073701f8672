"""The ranks of this node and their workers: found, identified, followed until they exit.

A scan lists /proc. The environment of a process is read once per program that it executes, however often it is
scanned; a pid that comes back with another start time is another process.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from eacgm.producers.cgroups import container_of, memberships
from eacgm.producers.environ import EnvironReader
from eacgm.producers.identity import SCHEDULER_STRENGTH, Identity, identify
from eacgm.producers.incarnations import Incarnations
from eacgm.producers.procfs import Stat, read_file, read_stat
from eacgm.producers.roles import LAUNCHER, RANK, Candidate, assign_roles

#: scans for which a young process is looked at again: between fork and exec it shows its parent's environment
_YOUNG_SCANS = 5
#: an older process that is no rank is looked at again once in so many scans: it may be another program or process now
_REVISIT_SCANS = 16
#: scans for which a rank named by the scheduler alone is held back: it may be a launcher that has not started its ranks
_HOLD_SCANS = 5


@dataclass(slots=True, eq=False)
class Process:
    """One rank's training process, or a worker of it.

    ``stat`` is its newest status line, ``groups`` its control groups (controller -> path). ``incarnation`` is the
    job's when it joined. ``executions`` counts the programs that it was seen to execute. ``exit_code`` is None while it
    runs and where nobody told; minus the signal's number if killed.
    """

    pid: int
    stat: Stat
    parent: int
    identity: Identity
    container: str | None
    groups: Mapping[str, str]
    first_scan: int
    role: str | None = None
    incarnation: int = 0
    executions: int = 1
    active: bool = False
    state: str = "running"
    exit_code: int | None = None

    @property
    def published(self) -> bool:
        """Whether the process is a rank or a worker, not a launcher or one that is still held back."""
        return self.role is not None and self.role != LAUNCHER


@dataclass(slots=True)
class Changes:
    """What a scan found: processes that are new, those whose role or program changed, those that are gone."""

    found: list[Process] = field(default_factory=list)
    changed: list[Process] = field(default_factory=list)
    ended: list[Process] = field(default_factory=list)


@dataclass(slots=True)
class _Sighting:
    """A process that was looked at: whose program it ran then, and since when it is known."""

    start_ticks: int
    stack_start: int
    first_scan: int


class ProcessTable:
    """The processes of this node that belong to distributed jobs.

    ``job`` names ranks that tell no job; ``only_jobs`` leaves all other jobs out. ``unreadable`` counts the processes
    whose environment may not be read.
    """

    def __init__(self, root: str = "", *, job: str | None = None, only_jobs: Collection[str] | None = None) -> None:
        self.unreadable = 0
        self._root = root
        self._job = job
        self._only_jobs = None if only_jobs is None else frozenset(only_jobs)
        self._environ = EnvironReader(root)
        self._incarnations = Incarnations()
        self._seen: dict[int, _Sighting] = {}
        self._members: dict[int, Process] = {}
        self._scan = 0

    @property
    def processes(self) -> list[Process]:
        """The ranks and workers that are running, by pid."""
        return [process for _, process in sorted(self._members.items()) if process.published]

    def scan(self, exits: Mapping[int, int | None] | None = None, executed: Collection[int] = ()) -> Changes:
        """Look at /proc once.

        ``exits`` (pid -> exit code) and ``executed`` (pids) are what the kernel told since the last scan, where it is
        traced: exit codes of processes that were reaped, and processes to look at again.
        """
        self._scan += 1
        changes = Changes()
        pids = self._pids()
        for pid in [pid for pid in self._members if pid not in pids]:
            self._end(pid, (exits or {}).get(pid), changes)
        for pid in [pid for pid in self._seen if pid not in pids]:
            del self._seen[pid]
        for pid in pids:
            self._look(pid, pid in executed, exits or {}, changes)
        self._settle_roles(changes)
        return changes

    def mark_active(self, pid: int) -> None:
        """Note that a process was seen to train: of all that carry its rank it is the training process."""
        process = self._members.get(pid)
        if process is not None:
            process.active = True

    def _pids(self) -> set[int]:
        return {int(name) for name in os.listdir(f"{self._root}/proc") if name.isdigit()}

    def _look(self, pid: int, executed: bool, exits: Mapping[int, int | None], changes: Changes) -> None:
        seen = self._seen.get(pid)
        member = self._members.get(pid)
        if seen is not None and member is None and not executed:
            young = self._scan - seen.first_scan <= _YOUNG_SCANS
            if not young and (pid + self._scan) % _REVISIT_SCANS:
                return
        stat = read_stat(self._root, pid)
        if stat is None:
            return
        if member is not None and (stat.start_ticks != member.stat.start_ticks or _dead(stat)):
            same = stat.start_ticks == member.stat.start_ticks
            self._end(pid, _exit_code(stat) if same else exits.get(pid), changes, exits)
            member = None
        if seen is not None and (seen.start_ticks, seen.stack_start) == (stat.start_ticks, stat.stack_start):
            if member is not None:
                member.stat = stat
                member.groups = memberships(read_file(f"{self._root}/proc/{pid}/cgroup"))
            return
        first_scan = seen.first_scan if seen is not None and seen.start_ticks == stat.start_ticks else self._scan
        self._seen[pid] = _Sighting(stat.start_ticks, stat.stack_start, first_scan)
        self._identify(stat, member, changes)

    def _identify(self, stat: Stat, member: Process | None, changes: Changes) -> None:
        """Read who a process is that is new or has executed another program."""
        identity = None if _dead(stat) else self._identity(stat.pid)
        if member is not None and identity == member.identity:
            member.stat = stat
            member.executions += 1
            if member.published:
                changes.changed.append(member)
            return
        if member is not None:
            self._end(stat.pid, None, changes)
        if identity is None or (self._only_jobs is not None and identity.job not in self._only_jobs):
            return
        groups = memberships(read_file(f"{self._root}/proc/{stat.pid}/cgroup"))
        self._members[stat.pid] = Process(
            pid=stat.pid,
            stat=stat,
            parent=stat.parent,
            identity=identity,
            container=container_of(groups),
            groups=groups,
            first_scan=self._scan,
        )

    def _identity(self, pid: int) -> Identity | None:
        try:
            variables = self._environ.read(pid)
        except PermissionError:
            self.unreadable += 1
            return None
        return None if variables is None else identify(variables, job=self._job, hostname=lambda: self._hostname(pid))

    def _hostname(self, pid: int) -> str | None:
        text = read_file(f"{self._root}/proc/{pid}/root/etc/hostname")
        return text.decode("utf-8", "replace").strip() if text else None

    def _end(self, pid: int, code: int | None, changes: Changes, exits: Mapping[int, int | None] | None = None) -> None:
        process = self._members.pop(pid)
        process.state = "exited"
        process.exit_code = code if code is not None else (exits or {}).get(pid)
        if process.role == RANK:
            self._incarnations.leave(process.identity.job, pid)
        if process.published:
            changes.ended.append(process)

    def _settle_roles(self, changes: Changes) -> None:
        """Decide who is rank, worker and launcher, now that all processes of this scan are known."""
        roles = assign_roles(
            Candidate(p.pid, p.parent, p.stat.start_ticks, p.stat.command, p.identity, p.role, p.active)
            for p in self._members.values()
        )
        # ranks first: a worker takes the incarnation of its rank
        for process in sorted(self._members.values(), key=lambda p: (roles[p.pid] != RANK, p.stat.start_ticks, p.pid)):
            role = roles[process.pid]
            if role == process.role or self._held_back(process, role):
                continue
            before = process.role
            process.role = role
            self._enter(process, before)
            if before is None or before == LAUNCHER:
                if process.published:
                    changes.found.append(process)
            else:
                changes.changed.append(process)

    def _held_back(self, process: Process, role: str) -> bool:
        weak = process.identity.strength <= SCHEDULER_STRENGTH and not process.active
        return role == RANK and weak and self._scan - process.first_scan < _HOLD_SCANS

    def _enter(self, process: Process, before: str | None) -> None:
        identity = process.identity
        if process.role == RANK:
            process.incarnation = self._incarnations.join(identity.job, identity.rank, process.pid, identity.restarts)
            return
        if before == RANK:
            self._incarnations.leave(identity.job, process.pid)
        for other in self._members.values():
            if other.role == RANK and (other.identity.job, other.identity.rank) == (identity.job, identity.rank):
                process.incarnation = other.incarnation


def _dead(stat: Stat) -> bool:
    # a leader that ended before its threads is a zombie too, but the process lives
    return stat.state in "ZX" and stat.threads <= 1


def _exit_code(stat: Stat) -> int | None:
    try:
        return os.waitstatus_to_exitcode(stat.wait_status)
    except ValueError:
        return None
