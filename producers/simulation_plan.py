"""What a simulated cluster is and which faults are planted in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from eacgm.errors import UsageError

#: 2026-01-01T00:00:00Z: simulated time is fixed, so that a seed gives the same bytes every day
START_SECONDS = 1_767_225_600
#: rank-seconds that fit into memory
MAX_RANK_SECONDS = 2_000_000
#: how long peers wait for a rank that died before their watchdog ends them
WATCHDOG_SECONDS = 60.0

#: kind -> whom it strikes when no rank is named: a ``rank`` of the seed's choice, its ``node``, the whole ``job``
FAULT_KINDS: dict[str, str] = {
    "slow_compute": "rank",
    "gpu_throttle": "rank",
    "gpu_memory": "job",
    "gpu_hardware": "rank",
    "pcie": "rank",
    "network": "node",
    "data_stall": "rank",
    "host_contention": "node",
    "gc_pause": "job",
    "checkpoint_stall": "job",
    "hang": "rank",
    "crash": "rank",
    "job_slowdown": "job",
    "telemetry_lost": "node",
}
#: faults from which no process recovers by itself
FINAL_KINDS = ("crash", "gpu_hardware")
#: faults that are the whole job's: naming ranks makes no sense
WHOLE_JOB_KINDS = ("checkpoint_stall", "job_slowdown")


@dataclass(frozen=True, slots=True)
class Fault:
    """One planted fault: ``ranks`` are struck; times are seconds from the start of the recording."""

    kind: str
    ranks: tuple[int, ...]
    onset_s: float
    end_s: float

    def strikes(self, time_s: float) -> bool:
        """Whether the fault is present at a time."""
        return self.onset_s <= time_s < self.end_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """A synchronous training job on a cluster.

    ``step_seconds`` is a healthy step; ``loss_probability`` of a rank's interval never to arrive; ``clock_error_ns``
    bounds the nodes' clock offsets. Periods of 0 leave a phase out.
    """

    n_ranks: int
    seconds: int
    seed: int
    faults: tuple[Fault, ...] = field(default=())
    ranks_per_node: int = 8
    step_seconds: float = 0.25
    warmup_seconds: float = 10.0
    checkpoint_every_seconds: float = 120.0
    checkpoint_seconds: float = 3.0
    eval_every_seconds: float = 200.0
    eval_seconds: float = 12.0
    loss_probability: float = 1 / 1700
    clock_error_ns: int = 500_000
    job: str = "simulated"

    def __post_init__(self) -> None:
        """Check the sizes; raises ``UsageError``."""
        if self.n_ranks < 1 or self.seconds < 1 or self.ranks_per_node < 1:
            raise UsageError("a cluster needs at least one rank, one rank a node and one second")
        if self.n_ranks * self.seconds > MAX_RANK_SECONDS:
            raise UsageError(
                f"{self.n_ranks} ranks for {self.seconds} s are more than the {MAX_RANK_SECONDS:,} rank-seconds "
                "that fit into memory; simulate fewer ranks or a shorter time"
            )

    def node_of(self, rank: int) -> int:
        """Return the number of a rank's node."""
        return rank // self.ranks_per_node

    def ranks_on(self, node: int) -> tuple[int, ...]:
        """Return a node's ranks."""
        first = node * self.ranks_per_node
        return tuple(range(first, min(first + self.ranks_per_node, self.n_ranks)))

    @property
    def n_nodes(self) -> int:
        """How many nodes there are."""
        return -(-self.n_ranks // self.ranks_per_node)


_FAULT = re.compile(
    r"(?P<kind>[a-z_]+)(?:@(?P<ranks>\d+(?:,\d+)*))?(?::(?P<start>\d+(?:\.\d+)?)(?:-(?P<end>\d+(?:\.\d+)?)?)?)?"
)


def parse_faults(texts: Sequence[str], plan: ClusterPlan) -> tuple[Fault, ...]:
    """Return the faults that ``KIND[@RANK[,RANK]][:START[-END]]`` describe, in order of onset.

    Without ranks the seed chooses whom it strikes; without times the second half's first minute is struck (a crash
    lasts for good). Raises ``UsageError`` for an unknown kind, a rank or a time that is not there.

    >>> parse_faults(["slow_compute@3:60-120"], ClusterPlan(n_ranks=8, seconds=300, seed=1))
    (Fault(kind='slow_compute', ranks=(3,), onset_s=60.0, end_s=120.0),)
    """
    faults = [_parse_fault(text, plan, number) for number, text in enumerate(texts)]
    return tuple(sorted(faults, key=lambda fault: (fault.onset_s, fault.kind, fault.ranks)))


def _parse_fault(text: str, plan: ClusterPlan, number: int) -> Fault:
    match = _FAULT.fullmatch(text)
    if match is None:
        raise UsageError(f"fault {text!r} is malformed; expected KIND[@RANK[,RANK]][:START[-END]] such as hang@3:60-90")
    kind = match["kind"]
    if kind not in FAULT_KINDS:
        raise UsageError(f"unknown fault {kind!r}; expected one of {', '.join(FAULT_KINDS)}")
    if kind in WHOLE_JOB_KINDS and match["ranks"]:
        raise UsageError(f"{kind} strikes the whole job; leave out @{match['ranks']}")
    onset_s = float(match["start"]) if match["start"] else plan.seconds / 2
    lasting = kind in FINAL_KINDS or match["start"] is not None
    end_s = float(match["end"]) if match["end"] else float(plan.seconds) if lasting else onset_s + 60.0
    if not 0 <= onset_s < min(end_s, plan.seconds):
        raise UsageError(f"fault {text!r}: expected a start before its end and within 0-{plan.seconds} s")
    if kind in FINAL_KINDS:
        end_s = float(plan.seconds)
    return Fault(kind, _struck(kind, match["ranks"], plan, number), onset_s, min(end_s, float(plan.seconds)))


def _struck(kind: str, named: str | None, plan: ClusterPlan, number: int) -> tuple[int, ...]:
    if FAULT_KINDS[kind] == "job" and not named:
        return tuple(range(plan.n_ranks))
    chosen = int(np.random.default_rng([plan.seed, number, 77]).integers(plan.n_ranks))
    ranks = sorted({int(rank) for rank in named.split(",")}) if named else [chosen]
    if ranks[-1] >= plan.n_ranks:
        raise UsageError(f"fault {kind}: rank {ranks[-1]} is not there; expected 0 to {plan.n_ranks - 1}")
    if FAULT_KINDS[kind] == "node":
        return tuple(sorted({peer for rank in ranks for peer in plan.ranks_on(plan.node_of(rank))}))
    return tuple(ranks)


def labels(plan: ClusterPlan) -> dict[str, object]:
    """Return what was planted, as ``labels.json`` tells it; times in seconds since the recording's start.

    ``ranks`` are the culprits: empty where the whole job is struck and nobody in particular is to blame.
    """
    everyone = tuple(range(plan.n_ranks))
    return {
        "job": plan.job,
        "ranks": plan.n_ranks,
        "seconds": plan.seconds,
        "seed": plan.seed,
        "start_s": START_SECONDS,
        "faults": [
            {
                "fault": fault.kind,
                "ranks": [] if fault.ranks == everyone and FAULT_KINDS[fault.kind] == "job" else list(fault.ranks),
                "onset_s": fault.onset_s,
                "end_s": fault.end_s,
            }
            for fault in plan.faults
        ],
    }
