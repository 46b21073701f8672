"""The physics of a synchronous job: when each rank loads, computes and waits, step by step.

A step is data, compute and collectives. The gradient's buckets are reduced while the backward still runs; a bucket's
collective begins when a rank has its part ready and ends on all ranks once the last one has come and the bytes are
through: so the slow rank waits least. Launches are asynchronous: their host time does not depend on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from eacgm.events import FloatArray, IntArray
from eacgm.producers.simulation_plan import WATCHDOG_SECONDS, ClusterPlan

#: collectives of a training step
N_BUCKETS = 3
#: shares of a healthy step
DATA_SHARE, COMPUTE_SHARE, TRANSFER_SHARE, OPTIMIZER_SHARE = 0.03, 0.75, 0.18, 0.04
FORWARD_SHARE = 0.35
#: host time in launches and in copies, of a step's compute
LAUNCH_SHARE, COPY_SHARE = 0.10, 0.05
#: how much a fault changes what it touches
SLOW_FACTOR, THROTTLE_FACTOR, JOB_FACTOR, COPY_FACTOR, TRANSFER_FACTOR, CONTENTION_FACTOR = 1.6, 1.7, 1.5, 4.0, 3.0, 1.7
DATA_STALL_STEPS = 1.2
GC_PAUSE_SECONDS = 0.6
GC_EVERY_SECONDS = 4.0
#: time between a GPU's fall off the bus and the end of its process
HARDWARE_DEATH_SECONDS = 3.0

TRAIN, EVAL, CHECKPOINT = 0, 1, 2


class Effects(NamedTuple):
    """What the faults do at one moment; arrays of shape ``(n_ranks,)``, seconds or factors."""

    compute: FloatArray
    contention: FloatArray
    copy: FloatArray
    data_s: FloatArray
    stuck_until_s: FloatArray
    gc_s: FloatArray
    transfer: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """Every step of every rank; arrays of shape ``(n_steps, n_ranks)``, true time in seconds from the start.

    A rank sleeps for data from ``begin`` to ``loaded``, works to ``computed`` and waits for peers to ``joined``
    (infinite where it never comes); ``ready`` ends the step. ``forward`` is the backward's beginning, NaN in steps
    without one. Collectives are of shape ``(n_steps, n_buckets, n_ranks)``: ``enter`` and ``leave``, NaN where there is
    none. ``kind`` is of shape ``(n_steps,)``; ``death_s`` and ``exit_code`` of shape ``(n_ranks,)``.
    """

    kind: IntArray
    begin: FloatArray
    loaded: FloatArray
    forward: FloatArray
    computed: FloatArray
    joined: FloatArray
    ready: FloatArray
    enter: FloatArray
    leave: FloatArray
    copy_s: FloatArray
    launch_s: FloatArray
    gc_s: FloatArray
    queue_s: FloatArray
    death_s: FloatArray
    exit_code: IntArray


class _Step(NamedTuple):
    kind: int
    begin: FloatArray
    loaded: FloatArray
    forward: FloatArray
    computed: FloatArray
    joined: FloatArray
    ready: FloatArray
    enter: FloatArray
    leave: FloatArray
    copy_s: FloatArray
    launch_s: FloatArray
    gc_s: FloatArray
    queue_s: FloatArray


class Job:
    """A job as it runs: its random numbers, its ranks' traits, and where each rank stands."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._plan = plan
        self._random = np.random.default_rng([plan.seed, 1])
        n_ranks = plan.n_ranks
        self._node = np.arange(n_ranks) // plan.ranks_per_node
        self._trait = np.exp(self._random.normal(0, 0.008, n_ranks))
        self._node_noise = np.zeros(plan.n_nodes)
        self._drift_phase = self._random.uniform(0, 2 * np.pi)
        self._next_checkpoint = plan.checkpoint_every_seconds or np.inf
        self._next_gc = 0.0
        self.death_s, self.exit_code = _deaths(plan)
        self.ready = self._random.uniform(0, 0.01, n_ranks)

    def run(self) -> Timeline:
        """Run to the end of the plan, or to the step that nobody can end."""
        steps: list[_Step] = []
        while (going := self.ready[np.isfinite(self.ready)]).size and going.max() < self._plan.seconds:
            step = self._step(float(going.max()))
            steps.append(step)
            self.ready = step.ready
        if not going.size:
            self._end_peers()
        columns = {name: np.array([getattr(s, name) for s in steps]) for name in _Step._fields}
        return Timeline(**columns, death_s=self.death_s, exit_code=self.exit_code)

    def _end_peers(self) -> None:
        """Let the watchdog of those who wait for a dead rank end them."""
        if np.isfinite(self.death_s).any():
            waiting = ~np.isfinite(self.death_s)
            self.exit_code[waiting] = -6
            self.death_s[waiting] = self.death_s[~waiting].min() + WATCHDOG_SECONDS

    def _step(self, now: float) -> _Step:
        plan = self._plan
        stall_end = max((f.end_s for f in plan.faults if f.kind == "checkpoint_stall" and f.strikes(now)), default=0.0)
        if stall_end or now >= self._next_checkpoint:
            self._next_checkpoint = max(now, stall_end) + plan.checkpoint_every_seconds or np.inf
            return self._checkpoint(stall_end)
        in_eval = bool(plan.eval_every_seconds) and now % plan.eval_every_seconds > (
            plan.eval_every_seconds - plan.eval_seconds
        )
        return self._work(now, EVAL if in_eval else TRAIN)

    def _checkpoint(self, stall_end: float) -> _Step:
        """Rank 0 writes while its peers wait for it in a barrier."""
        begin = self.ready
        n_ranks = len(begin)
        enter = np.full((N_BUCKETS, n_ranks), np.nan)
        written = begin.copy()
        written[0] = max(stall_end, begin[0] + self._plan.checkpoint_seconds * self._noise(1, 0.1)[0])
        enter[0] = written
        if (self.death_s < written.max()).any():
            written = np.where(self.death_s < written.max(), np.inf, written)
        joined = np.full(n_ranks, written.max() + 1e-3)
        leave = np.where(np.isnan(enter), np.nan, joined)
        none, zero = np.full(n_ranks, np.nan), np.zeros(n_ranks)
        return _Step(CHECKPOINT, begin, begin, none, written, joined, joined, enter, leave, zero, zero, zero, zero)

    def _work(self, now: float, kind: int) -> _Step:
        """A step of training, or of evaluation: forward only, and nobody waits for anybody."""
        n_ranks = self._plan.n_ranks
        effects = self._effects(now)
        base = self._plan.step_seconds * self._pace(now)
        copy_s = base * COPY_SHARE * effects.copy * self._noise(n_ranks, 0.05)
        own_s = self._own_work(base, kind) * effects.compute
        queue_s = own_s * (effects.contention - 1 + 0.01 * self._noise(n_ranks, 0.5))
        work_s = own_s + copy_s + queue_s + effects.gc_s
        begin = self.ready
        loaded = begin + base * DATA_SHARE * self._noise(n_ranks, 0.3) + effects.data_s
        computed = np.maximum(loaded + work_s, effects.stuck_until_s)
        computed = np.where(self.death_s < computed, np.inf, computed)
        launch_s = base * LAUNCH_SHARE * self._noise(n_ranks, 0.05)
        if kind == EVAL:
            forward = np.full(n_ranks, np.nan)
            enter = leave = np.full((N_BUCKETS, n_ranks), np.nan)
            joined = computed
        else:
            forward = loaded + FORWARD_SHARE * work_s
            transfer_s = base * TRANSFER_SHARE / N_BUCKETS * effects.transfer
            enter, leave = self._reduce(computed, (1 - FORWARD_SHARE) * work_s, transfer_s)
            joined = leave[-1]
        ready = joined + base * OPTIMIZER_SHARE * self._noise(n_ranks, 0.05)
        parts = (begin, loaded, forward, computed, joined, ready, enter, leave)
        return _Step(kind, *parts, copy_s, launch_s, effects.gc_s, queue_s)

    def _own_work(self, base: float, kind: int) -> FloatArray:
        """Return a step's own work of healthy ranks, seconds of shape ``(n_ranks,)``."""
        n_ranks = self._plan.n_ranks
        share = (COMPUTE_SHARE - COPY_SHARE) * (FORWARD_SHARE if kind == EVAL else 1.0)
        own_s = base * share * self._trait * self._common_noise() * self._noise(n_ranks, 0.015)
        return np.where(self._random.random(n_ranks) < 0.004, own_s * 1.25, own_s)

    def _reduce(self, computed: FloatArray, backward_s: FloatArray, transfer_s: float) -> tuple[FloatArray, FloatArray]:
        """Return when each rank enters and leaves each bucket's collective; a stuck rank has not begun the first."""
        enter = np.empty((N_BUCKETS, len(computed)))
        leave = np.empty_like(enter)
        left: FloatArray = np.zeros(len(computed))
        for bucket in range(N_BUCKETS):
            part = computed - backward_s * (1 - (bucket + 1) / N_BUCKETS)
            enter[bucket] = np.where(np.isinf(left) | np.isinf(part), np.nan, np.maximum(part, left))
            last = np.inf if np.isnan(enter[bucket]).any() else enter[bucket].max()
            left = (
                np.full(len(computed), last)
                + transfer_s * self._noise(1, 0.05)
                + 5e-5 * self._noise(len(computed), 0.3)
            )
            if (self.death_s < left).any():
                left = np.full(len(computed), np.inf)
            leave[bucket] = left
        return enter, leave

    def _effects(self, now: float) -> Effects:
        n_ranks = self._plan.n_ranks
        effects = Effects(
            compute=np.ones(n_ranks),
            contention=np.ones(n_ranks),
            copy=np.ones(n_ranks),
            data_s=np.zeros(n_ranks),
            stuck_until_s=np.zeros(n_ranks),
            gc_s=np.zeros(n_ranks),
            transfer=1.0,
        )
        for fault in self._plan.faults:
            if not fault.strikes(now):
                continue
            ranks = list(fault.ranks)
            factor = {"slow_compute": SLOW_FACTOR, "gpu_throttle": THROTTLE_FACTOR, "job_slowdown": JOB_FACTOR}
            effects.compute[ranks] *= factor.get(fault.kind, 1.0)
            if fault.kind == "host_contention":
                effects.contention[ranks] *= CONTENTION_FACTOR * self._noise(len(ranks), 0.1)
            elif fault.kind == "pcie":
                effects.copy[ranks] *= COPY_FACTOR
            elif fault.kind == "network":
                effects = effects._replace(transfer=effects.transfer * TRANSFER_FACTOR)
            elif fault.kind == "data_stall":
                effects.data_s[ranks] += DATA_STALL_STEPS * self._plan.step_seconds * self._noise(len(ranks), 0.2)
            elif fault.kind == "hang":
                effects.stuck_until_s[ranks] = fault.end_s if fault.end_s < self._plan.seconds else np.inf
            elif fault.kind == "gc_pause" and now >= self._next_gc:
                self._next_gc = now + GC_EVERY_SECONDS * float(self._noise(1, 0.2)[0])
                effects.gc_s[ranks[int(self._random.integers(len(ranks)))]] = GC_PAUSE_SECONDS
        return effects

    def _pace(self, now: float) -> float:
        """Return the length of a step in healthy ones: longer while warming up, drifting slowly afterwards."""
        warming = 1 + 2.0 * max(0.0, 1 - now / self._plan.warmup_seconds) if self._plan.warmup_seconds else 1.0
        return float(warming * (1 + 0.03 * np.sin(now / 97.0 + self._drift_phase)))

    def _common_noise(self) -> FloatArray:
        """Return the factor that a node's ranks share, of shape ``(n_ranks,)``: an autoregressive process per node."""
        self._node_noise = 0.95 * self._node_noise + self._random.normal(0, 0.003, len(self._node_noise))
        return np.exp(self._node_noise)[self._node]

    def _noise(self, size: int, spread: float) -> FloatArray:
        return np.exp(self._random.normal(0, spread, size))


def _deaths(plan: ClusterPlan) -> tuple[FloatArray, IntArray]:
    death_s = np.full(plan.n_ranks, np.inf)
    exit_code = np.zeros(plan.n_ranks, dtype=np.int64)
    for fault in plan.faults:
        if fault.kind in ("crash", "gpu_hardware"):
            late = HARDWARE_DEATH_SECONDS if fault.kind == "gpu_hardware" else 0.0
            ranks = list(fault.ranks)
            death_s[ranks] = np.minimum(death_s[ranks], fault.onset_s + late)
            exit_code[ranks] = -6 if fault.kind == "gpu_hardware" else -11
    return death_s, exit_code
