"""Each column on its own: an online mean and variance with forgetting, for cells that may be unknown."""

from __future__ import annotations

from typing import Any

import numpy as np

from eacgm.streams.whitening import BoolArray, FloatArray

#: rows that the broad prior is worth in a column's variance
PRIOR_ROWS = 10.0
#: the broad prior: a standard deviation of 2 in standardised units
PRIOR_VARIANCE = 4.0


class Margins:
    """Count, mean and variance of d columns, each over the rows in which it was known.

    ``count`` (d,) are effective rows (forgotten ones fade), ``seen`` (d,) tells which columns ever had a value.
    """

    def __init__(self, n_features: int) -> None:
        self.count: FloatArray = np.zeros(n_features)
        self.mean: FloatArray = np.zeros(n_features)
        self.spread: FloatArray = np.zeros(n_features)
        self.seen: BoolArray = np.zeros(n_features, dtype=np.bool_)

    def anchor(self, rows: FloatArray, known: BoolArray) -> bool:
        """Put the mean of columns seen for the first time on their median; return whether there was one.

        Without an anchor the first rows would be outliers of the prior and hardly be learnt.
        """
        new = ~self.seen & known.any(axis=0)
        if not new.any():
            return False
        columns = np.where(known, rows, np.nan)[:, new]
        self.mean[new] = np.nanmedian(columns, axis=0)
        self.seen |= new
        return True

    def learn(self, rows: FloatArray, known: BoolArray, weights: FloatArray, keep: float) -> None:
        """Fold in rows (n, d), of which ``known`` (n, d) cells count, with weights (n,)."""
        cell_weights = weights[:, None] * known
        off = np.where(known, rows - self.mean, 0.0)
        weighted = cell_weights * off
        self.fold(cell_weights.sum(axis=0), weighted.sum(axis=0), np.einsum("nd,nd->d", weighted, off), keep)

    def fold(self, fresh: FloatArray | np.float64, first: FloatArray, second: FloatArray, keep: float) -> None:
        """Fold in weighted sums: of weights, of distances from ``mean`` (d,) and of their squares (d,).

        What was there keeps the share ``keep``.
        """
        old = keep * self.count
        self.count = old + fresh
        scale = 1.0 / np.maximum(self.count, 1e-300)
        step = first * scale
        self.spread = np.maximum((old * self.spread + second) * scale - step * step, 0.0)
        self.mean = self.mean + step

    def variance(self, consistency: float) -> FloatArray:
        """Return the variances (d,), the broad prior mixed in; ``consistency`` undoes the robust weights' shrinkage."""
        prior = PRIOR_ROWS * PRIOR_VARIANCE
        return (self.count / consistency * self.spread + prior) / (self.count + PRIOR_ROWS)

    def extend(self, n_new: int) -> None:
        """Append columns of which nothing is known yet."""
        zeros = np.zeros(n_new)
        self.count, self.mean, self.spread = (np.append(a, zeros) for a in (self.count, self.mean, self.spread))
        self.seen = np.append(self.seen, np.zeros(n_new, dtype=np.bool_))

    def state(self) -> dict[str, Any]:
        """Return all that ``load`` needs, as copies."""
        return {
            "count": self.count.copy(),
            "mean": self.mean.copy(),
            "spread": self.spread.copy(),
            "seen": self.seen.copy(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` returned."""
        self.count, self.mean, self.spread = (np.array(state[name], float) for name in ("count", "mean", "spread"))
        self.seen = np.array(state["seen"], dtype=np.bool_)
