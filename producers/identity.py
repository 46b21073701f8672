"""Who a process is in its job, from the allow-listed names of its environment and nothing else.

The environment of a training process holds tokens and passwords. ``allowed`` copies the values of the names
below out of the raw bytes and never looks at the others; the caller wipes the raw bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

#: names by which launchers tell a process its rank, most specific first
RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX")
#: of these, the ones that a scheduler gives to any task, distributed training or not: they need a second sign
SCHEDULER_NAMES = RANK_NAMES[-2:]
#: ``Identity.strength`` of a rank that only the scheduler named
SCHEDULER_STRENGTH = len(SCHEDULER_NAMES)
LOCAL_RANK_NAMES = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
WORLD_SIZE_NAMES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")
LOCAL_WORLD_SIZE_NAMES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
RESTART_NAMES = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
JOB_NAMES = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT")

#: every environment name that is ever read
ALLOWED_NAMES = frozenset(
    RANK_NAMES + LOCAL_RANK_NAMES + WORLD_SIZE_NAMES + LOCAL_WORLD_SIZE_NAMES + RESTART_NAMES + JOB_NAMES
)
#: a longer value is none of ours; it is cut off, so that a hostile one costs nothing
MAX_VALUE_BYTES = 256
#: ranks and sizes above this are taken for a mistake
MAX_RANK = 10_000_000

_NAMES = "|".join(sorted(ALLOWED_NAMES, key=len, reverse=True)).encode()
_ENTRY = re.compile(rb"(?:\A|(?<=\0))(" + _NAMES + rb")=([^\0]{0,%d})" % MAX_VALUE_BYTES)
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


@dataclass(frozen=True, slots=True)
class Identity:
    """A process's place in its job.

    ``rank`` is None where the environment names one that cannot be read; ``restarts`` is the launcher's restart
    count, None where it keeps none. ``strength`` says how specific the rank's source is: a launcher under Slurm
    carries SLURM_PROCID (weak), the processes that it starts carry RANK (strong). ``problems`` are one-line
    complaints about values that make no sense.
    """

    job: str
    rank: int | None
    local_rank: int | None = None
    world_size: int | None = None
    local_world_size: int | None = None
    restarts: int | None = None
    group: str = ""
    strength: int = 0
    problems: tuple[str, ...] = ()


def allowed(environ: bytes | bytearray | memoryview) -> dict[str, str]:
    r"""Return the allow-listed entries of a raw ``/proc/PID/environ``; the first of a repeated name counts.

    >>> allowed(b"API_TOKEN=s3cret\0RANK=3\0XRANK=4\0WORLD_SIZE=8\0")
    {'RANK': '3', 'WORLD_SIZE': '8'}
    """
    found: dict[str, str] = {}
    for match in _ENTRY.finditer(environ):
        name = match[1].decode("ascii")
        found.setdefault(name, _UNPRINTABLE.sub("?", bytes(match[2]).decode("latin-1")))
    return found


def identify(
    variables: Mapping[str, str], *, job: str | None = None, hostname: Callable[[], str | None] | None = None
) -> Identity | None:
    """Return who a process with these variables is, or None if it is no part of a distributed job.

    ``variables`` is what ``allowed`` returned; ``job`` names processes that tell no job of their own; ``hostname``
    is asked for the process's host name where the job may be Kubernetes' (its pods are called ``JOB-INDEX``).
    Never raises: what makes no sense is told in ``problems``.

    >>> identify({"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "node-a", "MASTER_PORT": "29500"}).job
    'node-a:29500'
    """
    source = next((name for name in RANK_NAMES if name in variables), None)
    if source is None:
        return None
    problems: list[str] = []
    rank = _number(variables, (source,), problems)
    world_size = _number(variables, WORLD_SIZE_NAMES, problems, lowest=1)
    if source in SCHEDULER_NAMES and "MASTER_ADDR" not in variables and (world_size or 1) < 2:
        return None
    if rank is not None and world_size is not None and rank >= world_size:
        problems.append(f"{source} is {rank} with a world size of {world_size}; expected less: world size ignored")
        world_size = None
    name = _job_name(variables, hostname) or job
    if name is None:
        # a rank of nothing: many programs call something RANK
        return None
    return Identity(
        job=name,
        rank=rank,
        local_rank=_number(variables, LOCAL_RANK_NAMES, problems),
        world_size=world_size,
        local_world_size=_number(variables, LOCAL_WORLD_SIZE_NAMES, problems, lowest=1),
        restarts=_number(variables, RESTART_NAMES, problems),
        # torchrun's GROUP_RANK numbers nodes, not peers of the same work: only communicators tell those
        group="",
        strength=len(RANK_NAMES) - RANK_NAMES.index(source),
        problems=tuple(problems),
    )


def _job_name(variables: Mapping[str, str], hostname: Callable[[], str | None] | None) -> str | None:
    run = variables.get("TORCHELASTIC_RUN_ID", "")
    # torchrun without --rdzv-id calls every job "none"
    if run and run != "none":
        return run
    if variables.get("SLURM_JOB_ID"):
        return variables["SLURM_JOB_ID"]
    index = variables.get("JOB_COMPLETION_INDEX", "")
    if index and hostname is not None:
        pod = hostname() or ""
        if pod.endswith(f"-{index}"):
            return pod.removesuffix(f"-{index}")
    if variables.get("MASTER_ADDR"):
        return f"{variables['MASTER_ADDR']}:{variables.get('MASTER_PORT', '')}".rstrip(":")
    return None


def _number(variables: Mapping[str, str], names: tuple[str, ...], problems: list[str], lowest: int = 0) -> int | None:
    name = next((name for name in names if name in variables), None)
    if name is None:
        return None
    text = variables[name]
    if text.isascii() and text.isdigit() and len(text) <= 12 and lowest <= int(text) <= MAX_RANK:
        return int(text)
    problems.append(f"{name} is {text[:40]!r}; expected a whole number from {lowest} to {MAX_RANK}")
    return None
