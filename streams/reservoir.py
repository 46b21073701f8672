"""A bounded sample of clean rows in which every stretch of time has its share, and old times fade."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eacgm.errors import InputError
from eacgm.streams.whitening import FloatArray

#: rows above the capacity that may pile up before the sample is thinned, as a share of the capacity
_SLACK = 0.25


class Reservoir:
    """At most ``capacity`` rows (n, d); a row's chance to be in it halves with every ``half_life_rows`` that follow.

    Weighted sampling without replacement (Efraimidis and Spirakis 2006), the weight growing with arrival. The draw of
    a row is a hash of its arrival number and the seed: no generator to keep, and the sample depends on the order of
    the rows but not on how they were batched.

    >>> reservoir = Reservoir(n_features=2, capacity=3, seed=7)
    >>> reservoir.offer(np.arange(20.0).reshape(10, 2))
    >>> reservoir.rows().shape, reservoir.n_offered
    ((3, 2), 10)
    """

    def __init__(self, n_features: int, capacity: int, seed: int = 0, half_life_rows: float | None = None) -> None:
        self.capacity, self.seed = capacity, seed
        self.half_life_rows = half_life_rows or 4.0 * capacity
        self.n_offered = 0
        self._rows: FloatArray = np.empty((int(capacity * (1.0 + _SLACK)) + 1, n_features))
        self._priorities: FloatArray = np.empty(len(self._rows))
        self._filled = 0

    def __len__(self) -> int:
        return min(self.capacity, self._filled)

    @property
    def n_features(self) -> int:
        """How many columns a row has."""
        return int(self._rows.shape[1])

    def offer(self, rows: FloatArray) -> None:
        """Offer rows (n, d), oldest first; unknown cells are NaN.

        Raises ``InputError`` for another number of columns.
        """
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise InputError(f"rows have shape {rows.shape}; expected (n, {self.n_features})")
        arrivals = np.arange(self.n_offered, self.n_offered + len(rows))
        self.n_offered += len(rows)
        priorities = arrivals * (np.log(2.0) / self.half_life_rows) - np.log(-np.log(_uniform(arrivals, self.seed)))
        start = 0
        while start < len(rows):
            if self._filled == len(self._rows):
                self._thin()
            take = min(len(self._rows) - self._filled, len(rows) - start)
            into, some = slice(self._filled, self._filled + take), slice(start, start + take)
            self._rows[into], self._priorities[into] = rows[some], priorities[some]
            self._filled, start = self._filled + take, start + take

    def rows(self) -> FloatArray:
        """Return a copy of the sample, oldest first."""
        self._thin()
        return self._rows[: self._filled].copy()

    def extend(self, n_new: int) -> None:
        """Append columns, unknown in the rows so far."""
        self._rows = np.hstack((self._rows, np.full((len(self._rows), n_new), np.nan)))

    def clear(self) -> None:
        """Forget all rows, as after a change of regime; the draws go on."""
        self._filled = 0

    def state(self) -> dict[str, Any]:
        """Return all that ``load`` needs, as copies."""
        self._thin()
        return {
            "n_offered": self.n_offered,
            "rows": self._rows[: self._filled].copy(),
            "priorities": self._priorities[: self._filled].copy(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` returned."""
        rows = np.asarray(state["rows"], dtype=np.float64)
        self.n_offered, self._filled = int(state["n_offered"]), len(rows)
        self._rows = np.empty((len(self._rows), rows.shape[1]))
        self._rows[: len(rows)], self._priorities[: len(rows)] = rows, state["priorities"]

    def _thin(self) -> None:
        if self._filled <= self.capacity:
            return
        best = np.argpartition(self._priorities[: self._filled], self._filled - self.capacity)[-self.capacity :]
        best.sort()
        self._rows[: self.capacity], self._priorities[: self.capacity] = self._rows[best], self._priorities[best]
        self._filled = self.capacity


def _uniform(numbers: NDArray[np.int64], seed: int) -> FloatArray:
    """Return draws in (0, 1), one per number, by the SplitMix64 mixing function (Steele, Lea and Flood 2014)."""
    word = numbers.astype(np.uint64) + np.uint64(1)
    word *= np.uint64(0x9E3779B97F4A7C15)
    word += np.uint64(seed * 0xD1B54A32D192ED03 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word ^= word >> np.uint64(shift)
        word *= np.uint64(factor)
    word ^= word >> np.uint64(31)
    return ((word >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
