"""The collective calls of one window, all ranks in one table, and who lagged behind whom in them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from eacgm.events import BoolArray, CollectivesEvent, FloatArray, IntArray
from eacgm.streams import sequence_alignment
from eacgm.streams.collective_groups import Groups, grouped, mean_lags
from eacgm.streams.collective_table import COLUMNS, UNKNOWN_NS, CollectiveTable

#: point-to-point calls have no common end and no first arriver
_PAIRWISE = frozenset({"send", "recv", "receive"})
#: communicators remembered per job; the longest unused is forgotten first
MOST_COMMUNICATORS = 1024
#: operations and nodes remembered per job; further ones are taken for one and the same
MOST_NAMES = 100_000
#: windows in a row that must contradict an alignment before it is given up
_DOUBTFUL_WINDOWS = 2
#: calls that two ranks must share before an alignment is doubted
_DOUBTFUL_PAIRS = 4


class CollectiveMatch:
    """Matches collectives by (communicator, sequence, operation) across ranks and windows.

    State per communicator (``channel``) and rank is of shape ``(n_channels, n_ranks)``.
    """

    def __init__(self, match_windows: int) -> None:
        self._match_windows = match_windows
        self._window = 0
        #: calls of more communicators in one window than are remembered
        self.refused = 0
        self._channels: dict[str, int] = {}
        self._names: dict[str, int] = {}
        self._pending = CollectiveTable.empty()
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
        if self._pending.row.size:
            self._pending.row[:] = old_rows[self._pending.row]

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
        n_ranks = self._offset.shape[1]
        now = self._table(events, rows)
        calls = self._pending.joined(now)
        if not calls.row.size:
            return np.full(n_ranks, np.nan), now
        cell = now.channel * n_ranks + now.row
        self._member.put(cell, True)
        self._used[now.channel] = self._window
        if not self._aligned.take(cell).all():
            self._align(calls)
        every = calls.channel * n_ranks + calls.row
        groups = grouped(calls, calls.sequence + self._offset.take(every), every)
        wanted = self._member.sum(axis=1)[groups.calls.channel[groups.starts]]
        old = np.minimum.reduceat(groups.calls.window, groups.starts) <= self._window - self._match_windows
        ready = (groups.sizes >= wanted) | old
        self._pending = groups.calls.where(~ready[groups.group])
        usable = ready & (groups.sizes >= 2)
        if usable.any():
            self._doubts(groups, usable)
            lag = mean_lags(groups, usable, self._aligned.take(groups.cell), n_ranks)
        else:
            lag = np.full(n_ranks, np.nan)
        # sequences ascend within a communicator, and assignment keeps the last
        newest = self._last.copy()
        newest.put(groups.cell, groups.sequence)
        self._last = np.maximum(self._last, newest)
        now.sequence += self._offset.take(cell)
        return lag, now

    def positions(self) -> FloatArray:
        """Return the last completed collective of each rank, summed over communicators, of shape ``(n_ranks,)``."""
        if not self._channels:
            return np.full(self._last.shape[1], np.nan)
        seen = self._last >= 0
        return np.where(seen.any(axis=0), np.where(seen, self._last, 0).sum(axis=0), np.nan)

    def _table(self, events: Sequence[CollectivesEvent], rows: IntArray) -> CollectiveTable:
        sizes = [len(event.communicator) for event in events]
        if not any(sizes):
            return CollectiveTable.empty()
        errors = [UNKNOWN_NS if event.clock_error_ns is None else event.clock_error_ns for event in events]
        table = CollectiveTable(np.empty((len(COLUMNS), sum(sizes)), dtype=np.int64))
        table.row[:] = np.repeat(rows, sizes)
        table.channel[:] = self._channel_ids([event.communicator for event in events])
        table.operation[:] = self._name_ids([event.operation for event in events])
        np.concatenate([event.call_sequence for event in events], out=table.sequence)
        np.concatenate([event.call_start_ns for event in events], out=table.start_ns)
        np.concatenate([event.call_end_ns for event in events], out=table.end_ns)
        np.concatenate([event.payload_bytes for event in events], out=table.payload_bytes)
        np.concatenate([event.return_code for event in events], out=table.return_code)
        nodes = self._name_ids([[event.node for event in events]])
        table.node[:] = nodes if isinstance(nodes, int) else np.repeat(nodes, sizes)
        table.error_ns[:] = np.repeat(np.array(errors, dtype=np.int64), sizes)
        table.window[:] = self._window
        forgotten = table.channel < 0
        if forgotten.any():
            self.refused += int(forgotten.sum())
            table = table.where(~forgotten)
        pairwise = [self._names[name] for name in _PAIRWISE if name in self._names]
        return table.where(~np.isin(table.operation, pairwise)) if pairwise else table

    def _channel_ids(self, names: Sequence[list[str]]) -> IntArray | int:
        distinct: set[str] = set().union(*names)
        new = sorted(distinct - self._channels.keys())
        if new:
            # what is used in this window is not forgotten for what is new in it
            self._used[[self._channels[name] for name in distinct - set(new)]] = self._window
            for name in new:
                self._add_channel(name)
        return _ids(self._channels, names, distinct)

    def _name_ids(self, names: Sequence[list[str]]) -> IntArray | int:
        distinct: set[str] = set().union(*names)
        for name in sorted(distinct - self._names.keys())[: MOST_NAMES - len(self._names)]:
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
        if self._used[slot] == self._window:
            return  # more in one window than are remembered
        self._channels = {old: at for old, at in self._channels.items() if at != slot}
        self._channels[name] = slot
        self._pending = self._pending.where(self._pending.channel != slot)
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
            mine = calls.where(calls.channel == channel)
            count = np.bincount(mine.row, minlength=n_ranks)
            known = np.flatnonzero(self._aligned[channel] & (count > 0))
            reference = int(known[0]) if known.size else int(np.argmax(count))
            if count[reference] < sequence_alignment.LEAST_PAIRS or np.count_nonzero(count) < 2:
                continue
            if self._align_to(channel, reference, mine, (count > 0) & ~self._aligned[channel]):
                self._aligned[channel, reference] = True

    def _align_to(self, channel: int, reference: int, calls: CollectiveTable, unknown: BoolArray) -> bool:
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

    def _doubts(self, groups: Groups, usable: BoolArray) -> None:
        """Give up alignments under which a rank's ends were far from its peers' for some windows in a row."""
        starts, group, end_ns = groups.starts, groups.group, groups.calls.end_ns
        middle = end_ns[starts + (groups.sizes - 1) // 2]
        inside = usable[group]
        cell = groups.cell[inside]
        away = np.abs(end_ns - middle[group])[inside]
        shape, size = self._offset.shape, self._offset.size
        count = np.bincount(cell, minlength=size)
        mean = np.bincount(cell, weights=away, minlength=size) / np.maximum(count, 1)
        period = np.full(shape[0], np.inf)
        of_group = groups.calls.channel[starts]
        for channel in set(of_group.tolist()):
            first, last = (of_group == channel).nonzero()[0][[0, -1]]
            n_calls = groups.sequence[starts[last]] - groups.sequence[starts[first]]
            if n_calls > 0:
                period[channel] = (middle[last] - middle[first]) / n_calls
        limit = np.repeat(np.maximum(0.5 * period, sequence_alignment.INSTANT_NS), shape[1])
        doubtful = (count >= _DOUBTFUL_PAIRS) & (mean > limit)
        if doubtful.any() or self._doubt.any():
            doubtful, told = doubtful.reshape(shape), (count > 0).reshape(shape)
            self._doubt = np.where(doubtful, self._doubt + 1, np.where(told, 0, self._doubt))
            self._aligned[self._doubt >= _DOUBTFUL_WINDOWS] = False
            self._doubt[self._doubt >= _DOUBTFUL_WINDOWS] = 0

    def state(self) -> dict[str, Any]:
        """Return everything that the future depends on."""
        return {
            "window": self._window,
            "refused": self.refused,
            "channels": dict(self._channels),
            "names": dict(self._names),
            "pending": {name: getattr(self._pending, name) for name in COLUMNS},
            **{name: getattr(self, f"_{name}") for name in _ARRAYS},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        self._window, self.refused = state["window"], state["refused"]
        self._channels = dict(state["channels"])
        self._names = dict(state["names"])
        self._pending = CollectiveTable.of(**state["pending"])
        for name in _ARRAYS:
            setattr(self, f"_{name}", state[name].copy())


_ARRAYS = ("offset", "aligned", "member", "last", "doubt", "used")


def _ids(known: dict[str, int], names: Sequence[list[str]], distinct: set[str]) -> IntArray | int:
    """Return the numbers of all lists' names, one list after the other; one number if all names are the same.

    -1 stands for a name that has no number.
    """
    if len(distinct) == 1:
        return known.get(next(iter(distinct)), -1)
    flat = (known.get(name, -1) for name in chain.from_iterable(names))
    return np.fromiter(flat, dtype=np.int64, count=sum(map(len, names)))


def _calls_of(calls: CollectiveTable, row: int) -> CollectiveTable:
    mine = calls.where(calls.row == row)
    return mine.take(np.argsort(mine.sequence, kind="stable"))
