"""Which of the processes that carry a rank's name is the rank: it, its workers, and the launchers around it.

Children inherit the environment, so a training process, its data loaders and compile workers, and the shell that
wraps it all say RANK=3. Pure: works on what ``Candidate`` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eacgm.producers.identity import Identity

RANK, WORKER, LAUNCHER = "rank", "worker", "launcher"

#: commands that only start others
WRAPPERS = frozenset({
    "sh", "bash", "dash", "zsh", "ksh", "fish", "env", "timeout", "nice", "ionice", "numactl", "taskset", "setsid",
    "nohup", "stdbuf", "time",
    "sudo", "su", "ssh", "sshd", "tini", "dumb-init", "docker", "runc", "containerd-shim",
    "srun", "slurm_script", "slurmstepd", "mpirun", "mpiexec", "orted", "prted", "prterun", "hydra_pmi_proxy",
    "torchrun", "deepspeed", "accelerate", "conda", "uv", "poetry",
    "nsys", "ncu", "perf", "strace",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process whose environment names a rank; ``role`` is what it was taken for so far, None if it is new.

    ``parent`` is the parent that it had when it was first seen; ``start_ticks`` orders processes by age; ``active``
    says that it was seen to train (a backward, a collective), which settles the matter.
    """

    pid: int
    parent: int
    start_ticks: int
    command: str
    identity: Identity
    role: str | None = None
    active: bool = False


def assign_roles(candidates: Iterable[Candidate]) -> dict[int, str]:
    """Return pid -> ``rank``, ``worker`` or ``launcher`` for processes that are all alive.

    A launcher is a wrapper by its command, or has a descendant that carries another rank or a more specific name of
    one. Of the others with one job and rank, the rank is the one that trains, else the one that was it before, else
    the topmost, oldest; the rest are its workers. A worker stays one when its rank has died.
    """
    by_pid = {candidate.pid: candidate for candidate in candidates}
    launchers = _launchers(by_pid)
    roles = dict.fromkeys(launchers, LAUNCHER)
    groups: dict[tuple[str, int], list[Candidate]] = {}
    for candidate in by_pid.values():
        if candidate.pid in launchers:
            continue
        rank = candidate.identity.rank
        if rank is None:
            nested = any(other.pid not in launchers for other in _ancestors(candidate, by_pid))
            roles[candidate.pid] = WORKER if nested else RANK
        else:
            groups.setdefault((candidate.identity.job, rank), []).append(candidate)
    for group in groups.values():
        primary = _primary(group, by_pid, launchers)
        roles.update({member.pid: RANK if member is primary else WORKER for member in group})
    return roles


def _primary(group: list[Candidate], by_pid: Mapping[int, Candidate], launchers: set[int]) -> Candidate | None:
    """Return the member that is the rank, None if only workers of a dead one are left."""
    eligible = [
        member for member in group if member.active or member.role == RANK or _topmost(member, by_pid, launchers)
    ]
    return min(eligible, key=lambda m: (not m.active, m.role != RANK, m.start_ticks, m.pid), default=None)


def _topmost(member: Candidate, by_pid: Mapping[int, Candidate], launchers: set[int]) -> bool:
    """Return whether only launchers stand above a member; an orphaned worker has nothing above it and is not."""
    above = _ancestors(member, by_pid)
    return all(other.pid in launchers for other in above) and (member.role != WORKER or bool(above))


def _launchers(by_pid: Mapping[int, Candidate]) -> set[int]:
    found = {pid for pid, candidate in by_pid.items() if candidate.command in WRAPPERS}
    for candidate in by_pid.values():
        mine = candidate.identity
        for ancestor in _ancestors(candidate, by_pid):
            theirs = ancestor.identity
            if ancestor.active:
                # a rank that starts another job of its own, such as an evaluation
                continue
            if mine.strength > theirs.strength or (mine.job == theirs.job and mine.rank != theirs.rank):
                found.add(ancestor.pid)
    return found


def _ancestors(candidate: Candidate, by_pid: Mapping[int, Candidate]) -> list[Candidate]:
    """Return the candidates above one, nearest first; ends where the chain leaves the candidates."""
    found: list[Candidate] = []
    above = by_pid.get(candidate.parent)
    while above is not None and above not in found and above.start_ticks <= candidate.start_ticks:
        found.append(above)
        above = by_pid.get(above.parent)
    return found
