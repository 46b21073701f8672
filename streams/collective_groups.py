"""The same collective on several ranks, put side by side; and who entered it how long after the first."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from eacgm.events import BoolArray, FloatArray, IntArray
from eacgm.streams import scatter
from eacgm.streams.collective_table import UNKNOWN_NS, CollectiveTable

_FIRST = np.zeros(1, dtype=np.int64)


@dataclass(slots=True)
class Groups:
    """The same collective of several ranks is one group; ``calls`` are sorted by it, then by their ends.

    Per call: ``sequence`` (counted alike on all ranks), ``cell`` (its place in the state per communicator and rank),
    ``group`` (which one). Per group: ``starts`` (its first call) and ``sizes``.
    """

    calls: CollectiveTable
    sequence: IntArray
    cell: IntArray
    group: IntArray
    starts: IntArray
    sizes: IntArray


def grouped(calls: CollectiveTable, sequence: IntArray, cell: IntArray) -> Groups:
    """Return the calls, at least one, by communicator, sequence and operation.

    ``sequence`` and ``cell`` are of shape ``(n_calls,)``, as in ``Groups``.
    """
    order = _order(calls, sequence)
    calls, cell, sequence = calls.take(order), cell[order], sequence[order]
    change = sequence[1:] != sequence[:-1]
    change |= calls.channel[1:] != calls.channel[:-1]
    change |= calls.operation[1:] != calls.operation[:-1]
    starts = np.concatenate((_FIRST, change.nonzero()[0] + 1))
    sizes = np.concatenate((starts[1:], [sequence.size])) - starts
    return Groups(calls, sequence, cell, np.repeat(np.arange(starts.size), sizes), starts, sizes)


def mean_lags(groups: Groups, usable: BoolArray, aligned: BoolArray, n_ranks: int) -> FloatArray:
    """Return the mean lag of each rank over the usable groups, of shape ``(n_ranks,)`` in seconds, NaN where none is.

    ``usable`` of shape ``(n_groups,)``; ``aligned`` of shape ``(n_calls,)`` marks calls whose sequence is known to
    count like the others'.
    """
    calls, group = groups.calls, groups.group
    lag_ns = calls.start_ns - np.minimum.reduceat(calls.start_ns, groups.starts)[group]
    first = np.empty(groups.starts.size, dtype=np.int64)
    at = (lag_ns == 0).nonzero()[0][::-1]
    first[group[at]] = at
    leader = first[group]
    counted = usable[group] & aligned
    apart = calls.node != calls.node[leader]
    if apart.any():
        leader_error_ns = calls.error_ns[leader]
        lag_ns[apart & (lag_ns <= calls.error_ns + leader_error_ns)] = 0
        counted &= ~(apart & ((calls.error_ns == UNKNOWN_NS) | (leader_error_ns == UNKNOWN_NS)))
    rows = calls.row[counted]
    count = np.bincount(rows, minlength=n_ranks)
    total = np.bincount(rows, weights=lag_ns[counted], minlength=n_ranks)
    return scatter.ratio(total, count) * 1e-9


def _order(calls: CollectiveTable, sequence: IntArray) -> IntArray:
    """Return the order by communicator, sequence, operation and end; of equals, the first stays first."""
    parts = (calls.channel, sequence, calls.operation, calls.end_ns)
    lows = [int(part.min()) for part in parts]
    spans = [int(part.max()) - low + 1 for part, low in zip(parts, lows, strict=True)]
    if math.prod(spans) >= 2**63:
        return np.lexsort(parts[::-1])
    # one number says it all, and sorting by one is several times faster
    key = parts[0] - lows[0]
    for part, low, span in zip(parts[1:], lows[1:], spans[1:], strict=True):
        key *= span
        key += part
        key -= low
    return np.argsort(key, kind="stable")
