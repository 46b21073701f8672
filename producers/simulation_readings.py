"""A simulated job's timeline, read interval by interval as probes, /proc and NVML would read it.

Matrices are of shape ``(n_intervals, n_ranks)``. An interval is a second of its node's own clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eacgm.events import FloatArray, IntArray
from eacgm.producers.simulation_plan import ClusterPlan
from eacgm.producers.simulation_steps import CHECKPOINT, TRAIN, Timeline

BUCKET_BYTES = 25_000_000
COPY_BYTES = 64_000_000
COPIES_PER_STEP = 2
LAUNCHES_PER_STEP = 380
CHECKPOINT_BYTES = 2_000_000_000
GC_ROUTINE_SECONDS = 3e-4

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CallSeries:
    """One rank's calls of one function in order, with the calls of each interval found in advance.

    An entry of ``total_s``, of shape ``(n_entries,)``, is ``calls`` calls that took so long together (infinite for one
    that never returns), each moving ``payload_bytes``. ``first`` and ``last``, of shape ``(n_intervals,)``, bound the
    entries that returned in each interval; ``open_since_s`` is when the one in flight at its end began, NaN if none.
    """

    layer: str
    function: str
    calls: int
    payload_bytes: int
    total_s: FloatArray
    first: IntArray
    last: IntArray
    open_since_s: FloatArray


@dataclass(frozen=True, slots=True)
class CollectiveSeries:
    """One rank's collectives in order; ``first`` and ``last`` as for calls, ``open_`` the call in flight or -1."""

    sequence: IntArray
    barrier: BoolArray
    start_s: FloatArray
    end_s: FloatArray
    first: IntArray
    last: IntArray
    open_: IntArray


@dataclass(frozen=True, slots=True)
class Shares:
    """Seconds of each interval that a rank spent; matrices of shape ``(n_intervals, n_ranks)``."""

    asleep: FloatArray
    work: FloatArray
    wait: FloatArray
    queue: FloatArray
    saving: FloatArray
    copying: FloatArray


def bounds_s(plan: ClusterPlan, offset_s: float) -> FloatArray:
    """Return the true times at which a node's clock shows whole seconds; of shape ``(n_intervals + 1,)``."""
    return np.arange(plan.seconds + 1, dtype=np.float64) - offset_s


def shares(plan: ClusterPlan, timeline: Timeline, offset_s: FloatArray) -> Shares:
    """Return how each rank's seconds were spent; ``offset_s`` is each rank's clock offset, of shape ``(n_ranks,)``."""
    saves = (timeline.kind == CHECKPOINT)[:, np.newaxis]
    own = ~saves & np.ones(plan.n_ranks, dtype=bool)
    spans = {
        "asleep": (timeline.begin, timeline.loaded),
        "work": (np.where(own, timeline.loaded, timeline.computed), timeline.computed),
        "wait": (timeline.computed, timeline.joined),
        "queue": (timeline.computed - timeline.queue_s, timeline.computed),
        "saving": (np.where(own, timeline.computed, timeline.loaded), timeline.computed),
        "copying": (timeline.loaded, timeline.loaded + timeline.copy_s),
    }
    found = {name: np.empty((plan.seconds, plan.n_ranks)) for name in spans}
    for rank in range(plan.n_ranks):
        at_s = np.minimum(bounds_s(plan, offset_s[rank]), timeline.death_s[rank])
        for name, (begin, end) in spans.items():
            found[name][:, rank] = _time_within(begin[:, rank], end[:, rank], at_s)
    return Shares(**found)


def _time_within(begin_s: FloatArray, end_s: FloatArray, at_s: FloatArray) -> FloatArray:
    """Return how much of each stretch between successive ``at_s`` lies in any of the spans, which do not overlap."""
    horizon_s = at_s[-1] + 1
    knots = np.minimum(np.column_stack((begin_s, end_s)), horizon_s)
    knots = np.where(np.isnan(knots), horizon_s, knots)
    spent = np.cumsum(knots[:, 1] - knots[:, 0])
    total = np.column_stack((np.concatenate(([0.0], spent[:-1])), spent))
    return np.diff(np.interp(at_s, knots.ravel(), total.ravel()))


def call_series(timeline: Timeline, rank: int, at_s: FloatArray) -> list[CallSeries]:
    """Return the calls of a rank's traced functions; ``at_s`` are the true times of the intervals' borders."""
    working = timeline.kind != CHECKPOINT
    training = timeline.kind == TRAIN
    loaded, computed = timeline.loaded[:, rank], timeline.computed[:, rank]
    launched = loaded + timeline.launch_s[:, rank]
    copied = loaded + timeline.copy_s[:, rank]
    gc_s = timeline.gc_s[:, rank] + GC_ROUTINE_SECONDS
    entered, left = timeline.enter[:, :, rank].ravel(), timeline.leave[:, :, rank].ravel()
    rows = (
        ("pytorch", "backward", training, timeline.forward[:, rank], timeline.joined[:, rank], 1, 0),
        ("cuda", "cudaLaunchKernel", working, loaded, launched, LAUNCHES_PER_STEP, 0),
        ("cuda", "cudaMemcpyAsync", working, loaded, copied, COPIES_PER_STEP, COPY_BYTES),
        ("cuda", "cudaStreamSynchronize", working, launched, np.maximum(computed, launched), 1, 0),
        ("python", "gc", working, loaded, loaded + gc_s, 1, 0),
    )
    series = [_series(layer, name, s[mask], e[mask], m, size, at_s) for layer, name, mask, s, e, m, size in rows]
    reduces = np.repeat(training, timeline.enter.shape[1]) & ~np.isnan(entered)
    barriers = np.repeat(timeline.kind == CHECKPOINT, timeline.enter.shape[1]) & ~np.isnan(entered)
    series.append(_series("collective", "allreduce", entered[reduces], left[reduces], 1, BUCKET_BYTES, at_s))
    series.append(_series("collective", "barrier", entered[barriers], left[barriers], 1, 0, at_s))
    return series


def _series(
    layer: str, function: str, start_s: FloatArray, end_s: FloatArray, calls: int, payload: int, at_s: FloatArray
) -> CallSeries:
    begun = np.isfinite(start_s) & (start_s < at_s[-1])
    start_s, end_s = start_s[begun], end_s[begun]
    borders = np.searchsorted(end_s, at_s, side="right")
    newest = _open_at(start_s, end_s, at_s[1:])
    since = np.where(newest >= 0, np.append(start_s, np.nan)[newest], np.nan)
    return CallSeries(
        layer=layer,
        function=function,
        calls=calls,
        payload_bytes=payload,
        total_s=end_s - start_s,
        first=borders[:-1],
        last=borders[1:],
        open_since_s=since,
    )


def _open_at(start_s: FloatArray, end_s: FloatArray, at_s: FloatArray) -> IntArray:
    """Return which call is in flight at each time, -1 where none is; calls follow one another."""
    newest = np.searchsorted(start_s, at_s, side="right") - 1
    running = (newest >= 0) & (np.append(end_s, -np.inf)[newest] > at_s)
    return np.where(running, newest, -1).astype(np.int64)


def collective_series(timeline: Timeline, rank: int, at_s: FloatArray) -> CollectiveSeries:
    """Return a rank's collectives; a call's sequence is its number among all that any rank entered."""
    entered = ~np.isnan(timeline.enter).all(axis=2).ravel()
    sequence = np.cumsum(entered) - 1
    start_s, end_s = timeline.enter[:, :, rank].ravel(), timeline.leave[:, :, rank].ravel()
    mine = np.isfinite(start_s)
    barrier = np.repeat(timeline.kind == CHECKPOINT, timeline.enter.shape[1])
    start_s, end_s = start_s[mine], end_s[mine]
    borders = np.searchsorted(end_s, at_s, side="right")
    return CollectiveSeries(
        sequence=sequence[mine],
        barrier=barrier[mine],
        start_s=start_s,
        end_s=end_s,
        first=borders[:-1],
        last=borders[1:],
        open_=_open_at(start_s, end_s, at_s[1:]),
    )
