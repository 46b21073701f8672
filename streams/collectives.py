"""The collective calls of one window, all ranks in one table, and who lagged behind whom in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eacgm.events import CollectivesEvent, FloatArray, IntArray
from eacgm.streams import sequence_alignment

#: point-to-point calls have no common end and no first arriver
_PAIRWISE = frozenset({"send", "recv", "receive"})
#: the clock error of a node that does not tell its own
_UNKNOWN_NS = -1
#: communicators remembered per job; the longest unused is forgotten first
MOST_COMMUNICATORS = 1024
#: windows in a row that must contradict an alignment before it is given up
_DOUBTFUL_WINDOWS = 2
#: calls that two ranks must share before an alignment is doubted
_DOUBTFUL_PAIRS = 4


@dataclass(slots=True)
class CollectiveTable:
    """Calls of shape ``(n_calls,)``: ``row`` is the rank's row, ``channel`` and ``operation`` are interned names.

    ``sequence`` is the producer's count; ``node`` an interned name, ``error_ns`` its clock error or -1.
    """

    row: IntArray
    channel: IntArray
    operation: IntArray
    sequence: IntArray
    start_ns: IntArray
    end_ns: IntArray
    payload_bytes: IntArray
    return_code: IntArray
    node: IntArray
    error_ns: IntArray
    window: IntArray

    def take(self, which: Any) -> CollectiveTable:
        """Return the calls that an index or mask picks."""
        return CollectiveTable(*[getattr(self, name)[which] for name in _COLUMNS])

    def joined(self, other: CollectiveTable) -> CollectiveTable:
        """Return this table's calls followed by the other's."""
        return CollectiveTable(*[np.concatenate((getattr(self, name), getattr(other, name))) for name in _COLUMNS])


_COLUMNS = tuple(f.name for f in fields(CollectiveTable))


def _empty() -> CollectiveTable:
    return CollectiveTable(*(np.empty(0, dtype=np.int64) for _ in _COLUMNS))


class CollectiveMatch:
    """Matches collectives by (communicator, sequence, operation) across ranks and windows.

    State per communicator (``channel``) and rank is of shape ``(n_channels, n_ranks)``.
    """

    def __init__(self, match_windows: int) -> None:
        self._match_windows = match_windows
        self._window = 0
        self._channels: dict[str, int] = {}
        self._names: dict[str, int] = {}
        self._pending = _empty()
        self._offset = np.zeros((0, 0), dtype=np.int64)
        self._aligned = np.zeros((0, 0), dtype=bool)
        self._member = np.zeros((0, 0), dtype=bool)
        self._last = np.full((0, 0), -1, dtype=np.int64)
        self._doubt = np.zeros((0, 0), dtype=np.int64)
        self._used = np.zeros(0, dtype=np.int64)

    def resize(self, old_rows: IntArray, n_ranks: int) -> None:
        """Make room for ranks that appeared; ``old_rows`` says in which row each former row is now."""
        for name, blank in (("_offset", 0), ("_aligned", 0), ("_member", 0), ("_last", -1), ("_doubt", 0)):
            before = getattr(self, name)
            after = np.full((before.shape[0], n_ranks), blank, dtype=before.dtype)
            after[:, old_rows] = before
            setattr(self, name, after)
        self._pending.row = old_rows[self._pending.row] if self._pending.row.size else self._pending.row

    def leave(self, rows: IntArray) -> None:
        """Expect nothing more of ranks that have exited."""
        self._member[:, rows] = False

    def match(self, events: Sequence[CollectivesEvent], rows: IntArray) -> tuple[FloatArray, CollectiveTable]:
        """Take one window's events (``rows`` says whose); return the ranks' mean lags and the window's calls.

        The lag, of shape ``(n_ranks,)`` in seconds, is how long after its first arriver a rank entered a collective,
        averaged over the collectives that became complete, or can wait no longer; NaN where none did. A lag that the
        nodes' clock errors could explain is 0; where an error is unknown, nothing is said between two nodes. The
        calls' sequences count alike on all ranks as far as that is known.
        """
        self._window += 1
        now = self._table(events, rows)
        lag = np.full(self._offset.shape[1], np.nan)
        calls = self._pending.joined(now)
        if not calls.row.size:
            return lag, now
        self._member[now.channel, now.row] = True
        self._used[now.channel] = self._window
        if not self._aligned[now.channel, now.row].all():
            self._align(calls)
        sequence = calls.sequence + self._offset[calls.channel, calls.row]
        order = np.lexsort((calls.end_ns, calls.operation, sequence, calls.channel))
        calls, sequence = calls.take(order), sequence[order]
        change = (np.diff(sequence) != 0) | (np.diff(calls.channel) != 0) | (np.diff(calls.operation) != 0)
        starts = np.concatenate(([0], np.flatnonzero(change) + 1))
        sizes = np.diff(np.append(starts, sequence.size))
        wanted = self._member.sum(axis=1)[calls.channel[starts]]
        old = np.minimum.reduceat(calls.window, starts) <= self._window - self._match_windows
        ready = (sizes >= wanted) | old
        group = np.repeat(np.arange(starts.size), sizes)
        self._pending = calls.take(~ready[group])
        usable = ready & (sizes >= 2)
        if usable.any():
            self._doubts(calls, sequence, starts, sizes, group, usable)
            lag = self._lags(calls, starts, group, usable, lag.size)
        np.maximum.at(self._last, (calls.channel, calls.row), sequence)
        now.sequence = now.sequence + self._offset[now.channel, now.row]
        return lag, now

    def positions(self) -> FloatArray:
        """Return the last completed collective of each rank, summed over communicators, of shape ``(n_ranks,)``."""
        if not self._channels:
            return np.full(self._last.shape[1], np.nan)
        seen = self._last >= 0
        return np.where(seen.any(axis=0), np.where(seen, self._last, 0).sum(axis=0), np.nan)

    def _table(self, events: Sequence[CollectivesEvent], rows: IntArray) -> CollectiveTable:
        told = [(event, row) for event, row in zip(events, rows.tolist(), strict=True) if event.communicator]
        if not told:
            return _empty()
        found = [event for event, _ in told]
        sizes = [len(event.communicator) for event in found]
        errors = [_UNKNOWN_NS if event.clock_error_ns is None else event.clock_error_ns for event in found]
        table = CollectiveTable(
            row=np.repeat(np.array([row for _, row in told], dtype=np.int64), sizes),
            channel=self._channel_ids(list(chain.from_iterable([event.communicator for event in found]))),
            operation=self._name_ids(list(chain.from_iterable([event.operation for event in found]))),
            sequence=np.concatenate([event.call_sequence for event in found]),
            start_ns=np.concatenate([event.call_start_ns for event in found]),
            end_ns=np.concatenate([event.call_end_ns for event in found]),
            payload_bytes=np.concatenate([event.payload_bytes for event in found]),
            return_code=np.concatenate([event.return_code for event in found]),
            node=np.repeat(self._name_ids([event.node for event in found]), sizes),
            error_ns=np.repeat(np.array(errors, dtype=np.int64), sizes),
            window=np.full(sum(sizes), self._window, dtype=np.int64),
        )
        pairwise = [self._names[name] for name in _PAIRWISE if name in self._names]
        return table.take(~np.isin(table.operation, pairwise)) if pairwise else table

    def _channel_ids(self, names: list[str]) -> IntArray:
        distinct = set(names)
        for name in sorted(distinct - self._channels.keys()):
            self._add_channel(name)
        return _ids(self._channels, names, distinct)

    def _name_ids(self, names: list[str]) -> IntArray:
        distinct = set(names)
        for name in sorted(distinct - self._names.keys()):
            self._names[name] = len(self._names)
        return _ids(self._names, names, distinct)

    def _add_channel(self, name: str) -> None:
        if len(self._channels) < MOST_COMMUNICATORS:
            self._channels[name] = len(self._channels)
            self._offset = np.pad(self._offset, ((0, 1), (0, 0)))
            self._aligned = np.pad(self._aligned, ((0, 1), (0, 0)))
            self._member = np.pad(self._member, ((0, 1), (0, 0)))
            self._last = np.pad(self._last, ((0, 1), (0, 0)), constant_values=-1)
            self._doubt = np.pad(self._doubt, ((0, 1), (0, 0)))
            self._used = np.append(self._used, self._window)
            return
        slot = int(np.argmin(self._used))
        self._channels = {old: at for old, at in self._channels.items() if at != slot}
        self._channels[name] = slot
        self._pending = self._pending.take(self._pending.channel != slot)
        self._offset[slot] = self._doubt[slot] = 0
        self._aligned[slot] = self._member[slot] = False
        self._last[slot] = -1
        self._used[slot] = self._window

    def _align(self, calls: CollectiveTable) -> None:
        """Find the constants of ranks whose count is not yet known to agree with the others'."""
        n_ranks = self._offset.shape[1]
        for channel in np.unique(calls.channel).tolist():
            if self._aligned[channel, self._member[channel]].all():
                continue
            mine = calls.take(calls.channel == channel)
            count = np.bincount(mine.row, minlength=n_ranks)
            known = np.flatnonzero(self._aligned[channel] & (count > 0))
            reference = int(known[0]) if known.size else int(np.argmax(count))
            if count[reference] < sequence_alignment.LEAST_PAIRS or np.count_nonzero(count) < 2:
                continue
            if self._align_to(channel, reference, mine, (count > 0) & ~self._aligned[channel]):
                self._aligned[channel, reference] = True

    def _align_to(self, channel: int, reference: int, calls: CollectiveTable, unknown: NDArray[np.bool_]) -> bool:
        """Align the unknown ranks of one communicator with a reference; tell whether any could be."""
        base = _calls_of(calls, reference)
        base_sequence = base.sequence + self._offset[channel, reference]
        unknown[reference] = False
        agree = unknown & sequence_alignment.agreeing(
            calls.row, calls.sequence, calls.end_ns, base_sequence, base.end_ns, unknown.size
        )
        self._set_offset(channel, np.flatnonzero(agree), 0)
        found = bool(agree.any())
        for row in np.flatnonzero(unknown & ~agree).tolist():
            mine = _calls_of(calls, row)
            error_ns = int(max(mine.error_ns.max(), 0) + max(base.error_ns.max(), 0))
            shift = sequence_alignment.offset(mine.sequence, mine.end_ns, base_sequence, base.end_ns, error_ns)
            if shift is not None:
                self._set_offset(channel, np.array([row]), shift)
                found = True
        return found

    def _set_offset(self, channel: int, rows: IntArray, shift: int) -> None:
        self._offset[channel, rows] = shift
        self._aligned[channel, rows] = True
        self._last[channel, rows] = -1

    def _doubts(
        self,
        calls: CollectiveTable,
        sequence: IntArray,
        starts: IntArray,
        sizes: IntArray,
        group: IntArray,
        usable: Any,
    ) -> None:
        """Give up alignments under which a rank's ends were far from its peers' for some windows in a row."""
        middle = calls.end_ns[starts + (sizes - 1) // 2]
        inside = usable[group]
        n_ranks = self._offset.shape[1]
        cell = (calls.channel * n_ranks + calls.row)[inside]
        away = np.abs(calls.end_ns - middle[group])[inside]
        count = np.bincount(cell, minlength=self._offset.size)
        mean = np.bincount(cell, weights=away, minlength=self._offset.size) / np.maximum(count, 1)
        period = np.full(self._offset.shape[0], np.inf)
        for channel in np.unique(calls.channel[starts]).tolist():
            of_channel = calls.channel[starts] == channel
            first, last = np.flatnonzero(of_channel)[[0, -1]]
            n_calls = sequence[starts[last]] - sequence[starts[first]]
            if n_calls > 0:
                period[channel] = (middle[last] - middle[first]) / n_calls
        limit = np.repeat(np.maximum(0.5 * period, sequence_alignment.INSTANT_NS), n_ranks)
        doubtful = ((count >= _DOUBTFUL_PAIRS) & (mean > limit)).reshape(self._offset.shape)
        told = (count > 0).reshape(self._offset.shape)
        self._doubt = np.where(doubtful, self._doubt + 1, np.where(told, 0, self._doubt))
        if doubtful.any():
            self._aligned[self._doubt >= _DOUBTFUL_WINDOWS] = False
            self._doubt[self._doubt >= _DOUBTFUL_WINDOWS] = 0

    def _lags(self, calls: CollectiveTable, starts: IntArray, group: IntArray, usable: Any, n_ranks: int) -> FloatArray:
        """Return the mean lag per rank (seconds) over the usable groups."""
        begin_ns = np.minimum.reduceat(calls.start_ns, starts)
        is_first = calls.start_ns == begin_ns[group]
        first = np.full(starts.size, -1, dtype=np.int64)
        at = np.flatnonzero(is_first)[::-1]
        first[group[at]] = at
        leader = first[group]
        lag_ns = (calls.start_ns - begin_ns[group]).astype(np.float64)
        apart = calls.node != calls.node[leader]
        unknown = (calls.error_ns == _UNKNOWN_NS) | (calls.error_ns[leader] == _UNKNOWN_NS)
        lag_ns[apart & (lag_ns <= calls.error_ns + calls.error_ns[leader])] = 0.0
        counted = usable[group] & ~(apart & unknown) & self._aligned[calls.channel, calls.row]
        rows = calls.row[counted]
        count = np.bincount(rows, minlength=n_ranks)
        total = np.bincount(rows, weights=lag_ns[counted], minlength=n_ranks)
        return np.where(count > 0, total / np.maximum(count, 1) * 1e-9, np.nan)

    def state(self) -> dict[str, Any]:
        """Return everything that the future depends on."""
        return {
            "window": self._window,
            "channels": dict(self._channels),
            "names": dict(self._names),
            "pending": {name: getattr(self._pending, name) for name in _COLUMNS},
            **{name: getattr(self, f"_{name}") for name in _ARRAYS},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        self._window = state["window"]
        self._channels = dict(state["channels"])
        self._names = dict(state["names"])
        self._pending = CollectiveTable(**state["pending"])
        for name in _ARRAYS:
            setattr(self, f"_{name}", state[name].copy())


_ARRAYS = ("offset", "aligned", "member", "last", "doubt", "used")


def _ids(known: dict[str, int], names: list[str], distinct: set[str]) -> IntArray:
    if len(distinct) == 1:
        return np.full(len(names), known[names[0]], dtype=np.int64)
    return np.fromiter(map(known.__getitem__, names), dtype=np.int64, count=len(names))


def _calls_of(calls: CollectiveTable, row: int) -> CollectiveTable:
    mine = calls.take(calls.row == row)
    return mine.take(np.argsort(mine.sequence, kind="stable"))
