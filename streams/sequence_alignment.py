"""How far one rank's count of collectives is from another's.

A producer counts a communicator's calls from its first sight of the process, so the counts of two ranks may differ by
a constant. A synchronous collective ends nearly together on all its ranks: the right constant is the one that brings
the end times together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eacgm.events import IntArray

#: calls that two ranks must have in common before a constant is believed
LEAST_PAIRS = 2
#: the right constant's mean distance is at most this share of every neighbour's
DECISIVE_RATIO = 0.4
#: below this, two end times are one instant
INSTANT_NS = 1_000_000


def offset(
    sequence: IntArray, end_ns: IntArray, reference_sequence: IntArray, reference_end_ns: IntArray, error_ns: int = 0
) -> int | None:
    """Return what to add to ``sequence`` so that it counts like the reference, or None where that cannot be told.

    Arrays are of shape ``(n_calls,)`` and ``(n_reference_calls,)``, both sorted by sequence; ``error_ns`` is the
    clocks' summed error. Zero is kept unless another constant is decisively better.

    >>> calls, ends = np.arange(5), np.arange(5) * 100_000_000
    >>> offset(calls, ends + 200_000_000, calls + 7, ends)
    9
    """
    candidates = _candidates(sequence, end_ns, reference_sequence, reference_end_ns)
    costs = {shift: _distance(shift, sequence, end_ns, reference_sequence, reference_end_ns) for shift in candidates}
    told = {shift: cost for shift, cost in costs.items() if cost is not None}
    if not told:
        return None
    tolerance_ns = INSTANT_NS + error_ns
    best = min(told, key=lambda shift: (told[shift], abs(shift)))
    if 0 in told and told[0] * DECISIVE_RATIO <= told[best] + tolerance_ns:
        return 0
    others = [cost for shift, cost in told.items() if shift != best]
    if others and told[best] > DECISIVE_RATIO * min(others) + tolerance_ns:
        return None
    return best if others or told[best] <= tolerance_ns else None


def agreeing(
    row: IntArray,
    sequence: IntArray,
    end_ns: IntArray,
    reference_sequence: IntArray,
    reference_end_ns: IntArray,
    n_ranks: int,
) -> NDArray[np.bool_]:
    """Return which ranks' counts decisively agree with the reference's as they are, shape ``(n_ranks,)``.

    All ranks at once, because nearly all nearly always do; of the others ``offset`` tells the constant. Arrays of
    shape ``(n_calls,)`` and ``(n_reference_calls,)``, the latter sorted by sequence.
    """
    cost_ns = np.full((3, n_ranks), np.inf)
    for at, shift in enumerate((-1, 0, 1)):
        place = np.minimum(np.searchsorted(reference_sequence, sequence + shift), reference_sequence.size - 1)
        paired = reference_sequence[place] == sequence + shift
        away_ns = np.abs(end_ns - reference_end_ns[place])[paired]
        count = np.bincount(row[paired], minlength=n_ranks)
        total_ns = np.bincount(row[paired], weights=away_ns, minlength=n_ranks)
        enough = count >= LEAST_PAIRS
        cost_ns[at, enough] = total_ns[enough] / count[enough]
    neighbour_ns = np.minimum(cost_ns[0], cost_ns[2])
    decisive: NDArray[np.bool_] = np.isfinite(neighbour_ns) & (cost_ns[1] <= DECISIVE_RATIO * neighbour_ns)
    return decisive


def _candidates(sequence: IntArray, end_ns: IntArray, other_sequence: IntArray, other_end_ns: IntArray) -> set[int]:
    """Return the constants that the nearest end times suggest, their neighbours and zero."""
    if not sequence.size or not other_sequence.size:
        return set()
    order = np.argsort(other_end_ns, kind="stable")
    ends = other_end_ns[order]
    right = np.clip(np.searchsorted(ends, end_ns), 0, ends.size - 1)
    left = np.maximum(right - 1, 0)
    nearest = np.where(np.abs(ends[left] - end_ns) <= np.abs(ends[right] - end_ns), left, right)
    shifts, counts = np.unique(other_sequence[order[nearest]] - sequence, return_counts=True)
    likely = shifts[np.argsort(-counts, kind="stable")[:3]]
    return {0} | {int(shift) + step for shift in likely for step in (-1, 0, 1)}


def _distance(
    shift: int, sequence: IntArray, end_ns: IntArray, other_sequence: IntArray, other_end_ns: IntArray
) -> float | None:
    """Return the mean distance (ns) of the end times of calls that ``shift`` pairs; None for too few pairs."""
    _, mine, theirs = np.intersect1d(sequence + shift, other_sequence, return_indices=True)
    if mine.size < LEAST_PAIRS:
        return None
    return float(np.abs(end_ns[mine] - other_end_ns[theirs]).mean())
