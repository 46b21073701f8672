"""Which life of a job a rank belongs to: a restarted job keeps its name and gets the next incarnation."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class _Job:
    incarnation: int
    restarts: int | None
    seen: set[int | None] = field(default_factory=set)
    alive: set[int] = field(default_factory=set)


class Incarnations:
    """Numbers the incarnations of every job that has ranks on this node.

    The launcher's restart count decides where it grows. Where there is none, or it stays the same (a job submitted
    again under its old name), a rank that comes back once all the old ones are gone begins the next incarnation.
    Agents on several nodes agree as long as launchers count or all nodes saw the same restarts.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}

    def join(self, job: str, rank: int | None, pid: int, restarts: int | None) -> int:
        """Note that a process is a rank of a job from now on; return the job's incarnation."""
        known = self._jobs.get(job)
        if known is None:
            known = self._jobs[job] = _Job(restarts or 0, restarts)
        elif restarts is not None and known.restarts is not None and restarts > known.restarts:
            self._restart(known, known.incarnation + restarts - known.restarts, restarts)
        elif not known.alive and rank in known.seen:
            self._restart(known, known.incarnation + 1, restarts)
        known.seen.add(rank)
        known.alive.add(pid)
        return known.incarnation

    def leave(self, job: str, pid: int) -> None:
        """Note that a rank's process has ended."""
        if job in self._jobs:
            self._jobs[job].alive.discard(pid)

    @staticmethod
    def _restart(known: _Job, incarnation: int, restarts: int | None) -> None:
        known.incarnation, known.restarts = incarnation, restarts
        known.seen.clear()
        known.alive.clear()
