"""Collective calls of all ranks as one table of whole numbers."""

from __future__ import annotations

import numpy as np

from eacgm.events import BoolArray, IntArray

COLUMNS = (
    "row",
    "channel",
    "operation",
    "sequence",
    "start_ns",
    "end_ns",
    "payload_bytes",
    "return_code",
    "node",
    "error_ns",
    "window",
)
#: the clock error of a node that does not tell its own
UNKNOWN_NS = -1


class CollectiveTable:
    """Calls, a column each of shape ``(n_calls,)``; all of them are the rows of ``values``.

    ``row`` is the rank's row, ``channel`` and ``operation`` are interned names; ``sequence`` is the producer's count;
    ``node`` an interned name, ``error_ns`` its clock error or -1; ``window`` counts the job's windows.
    """

    __slots__ = ("values", *COLUMNS)

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

    def __init__(self, values: IntArray) -> None:
        """Take ``values`` of shape ``(len(COLUMNS), n_calls)``; the columns are views of it."""
        self.values = values
        (
            self.row,
            self.channel,
            self.operation,
            self.sequence,
            self.start_ns,
            self.end_ns,
            self.payload_bytes,
            self.return_code,
            self.node,
            self.error_ns,
            self.window,
        ) = values

    @classmethod
    def empty(cls) -> CollectiveTable:
        """Return the table of no calls."""
        return cls(np.empty((len(COLUMNS), 0), dtype=np.int64))

    @classmethod
    def of(cls, **columns: IntArray) -> CollectiveTable:
        """Return the table of these columns, which are copied."""
        return cls(np.array([columns[name] for name in COLUMNS], dtype=np.int64))

    def take(self, places: IntArray) -> CollectiveTable:
        """Return the calls at these places."""
        return CollectiveTable(self.values.take(places, axis=1))

    def where(self, mask: BoolArray) -> CollectiveTable:
        """Return the calls that a mask picks."""
        return self.take(mask.nonzero()[0])

    def joined(self, other: CollectiveTable) -> CollectiveTable:
        """Return this table's calls followed by the other's."""
        if not self.row.size:
            return other
        return CollectiveTable(np.concatenate((self.values, other.values), axis=1))
