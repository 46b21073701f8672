"""The incremental Gaussian mixture: score rows, learn from rows, say which columns made a row unlikely.

Mini-batch online EM on sufficient statistics (Cappé and Moulines 2009) with forgetting and Student-like weights.
Deterministic: no clock, no randomness. Rows are in standardised units (1 is a typical deviation).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import gammaincinv

from eacgm.config import MixtureConfig
from eacgm.errors import InputError
from eacgm.streams.blas import pin_blas
from eacgm.streams.gaussians import Densities, Gaussians
from eacgm.streams.margins import Margins
from eacgm.streams.whitening import CACHED_DOUBLES, BoolArray, FloatArray, patterns

#: added to every variance, in standardised units
VARIANCE_FLOOR = 1e-2
#: cells beyond this many typical deviations are cut to it, so that 1e300 and infinity stay computable
CLIP = 1e5
#: rows that the pooled diagonal is worth in each covariance, per (d + 2)
SHRINKAGE = 0.1
#: share of the rows in which a column must have been known to be modelled together with the others
RIPE_SHARE = 0.5
#: the Gaussians are derived anew once rows worth this share of all, or so many, were folded in
STALE_SHARE = 1 / 64
STALE_ROWS = 256.0
_SIGNS = np.array([1.0, -1.0])[:, None, None]


class Mixture:
    """A Gaussian mixture over rows of ``n_features`` columns that keeps learning.

    It starts with one component around a broad prior. A column that was known in less than half of the rows so far
    is modelled on its own, independent of the others, until it ripens: too few pairs would make up a correlation.
    """

    def __init__(self, n_features: int, config: MixtureConfig | None = None) -> None:
        pin_blas()
        self.config = config or MixtureConfig()
        self.n_seen = 0
        self.n_clipped = 0
        self._counts: FloatArray = np.zeros(1)
        self._means: FloatArray = np.zeros((1, n_features))
        self._scatter: FloatArray = np.zeros((1, n_features, n_features))
        self._ripe: BoolArray = np.zeros(n_features, dtype=np.bool_)
        self._margins = Margins(n_features)
        self._renew()

    @classmethod
    def from_parameters(
        cls,
        gaussians: tuple[FloatArray, FloatArray, FloatArray],
        margins: Margins,
        n_rows: float,
        config: MixtureConfig,
    ) -> Mixture:
        """Build a mixture worth ``n_rows`` from (weights (K,), means (K, d), covariances (K, d, d)).

        ``margins`` holds the same rows' plain (not robust) margins and becomes the mixture's own; of columns that it
        knows in less than half of the rows, nothing else counts.
        """
        weights, means, covariances = gaussians
        self = cls(means.shape[1], config)
        self._counts = weights * (n_rows / weights.sum())
        self._means, self._margins = means.copy(), margins
        margins.spread = margins.spread * self._consistency
        self._scatter = covariances * self._consistency
        self._ripe = margins.count >= RIPE_SHARE * n_rows
        self._isolate()
        self._renew()
        return self

    @property
    def n_features(self) -> int:
        """How many columns a row has."""
        return int(self._means.shape[1])

    @property
    def n_components(self) -> int:
        """How many Gaussians there are."""
        return len(self._counts)

    @property
    def effective_rows(self) -> float:
        """How many rows the statistics are worth, forgotten and distrusted ones discounted."""
        return float(self._counts.sum())

    @property
    def gaussians(self) -> Gaussians:
        """The Gaussians that score now: covariances shrunk towards the pooled diagonal, and floored.

        They lag at most ``STALE_SHARE`` of the rows behind what was learnt (docs/decisions/0023).
        """
        return self._gaussians

    def score(self, rows: FloatArray) -> FloatArray:
        """Return the negative log-density (n,) in nats of rows (n, d); higher is more anomalous; always finite.

        Unknown cells (NaN) are neutral. Raises ``InputError`` if the rows have another number of columns.
        """
        return self.densities(rows).scores

    def densities(self, rows: FloatArray) -> Densities:
        """Return the scores and all that ``learn`` and ``contributions`` need, so that a batch is whitened once."""
        rows = np.asarray(rows, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise InputError(f"rows have shape {rows.shape}; expected (n, {self.n_features})")
        # A NaN makes the comparison false: one pass clears the common case.
        if self._all_seen and (not rows.size or np.abs(rows).max() <= CLIP):
            return self._gaussians.densities(rows, None)
        known = ~np.isnan(rows) & self._margins.seen
        rows = np.where(known, np.clip(rows, -CLIP, CLIP), 0.0)
        return self._gaussians.densities(rows, None if known.all() else known)

    def contributions(self, rows: FloatArray) -> FloatArray:
        """Return each column's share (n, d) in a row's anomaly: non-negative, rows sum to 1, unknown cells have 0."""
        return self._gaussians.contributions(self.densities(rows))

    def learn(self, rows: FloatArray, weights: FloatArray | None = None, densities: Densities | None = None) -> None:
        """Learn from rows (n, d) with weights (n,) from 0 (ignored, as if gated) to 1.

        ``densities`` is what ``self.densities(rows)`` returned since the last call of ``learn``, if at hand.
        Raises ``InputError`` if the shapes do not fit or a weight is out of range.
        """
        weights = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
        if weights.shape != (len(rows),):
            raise InputError(f"weights have shape {weights.shape}; expected ({len(rows)},), one for each row")
        low, high = (weights.min(), weights.max()) if len(rows) else (0.0, 0.0)
        if not (low >= 0.0 and high <= 1.0):
            raise InputError(f"weights reach from {low:g} to {high:g}; expected 0 to 1")
        if high == 0.0:
            return
        if densities is None or not self._all_seen:
            densities = self._anchor(np.asarray(rows, dtype=np.float64), weights)
        if densities.rows is not rows:
            self.n_clipped += int(np.count_nonzero(np.abs(np.asarray(rows)[weights > 0.0]) > CLIP))
        self.n_seen += int(np.count_nonzero(weights))
        width, nu = self.n_features, self.config.degrees_of_freedom
        trust = (nu + width) / (nu + densities.squared_distances)
        np.minimum(trust, 1.0, out=trust)
        trust *= densities.responsibilities
        trust *= weights[:, None]
        self._fold(densities, trust)

    def draw_unknown(self, rows: FloatArray, random: np.random.Generator) -> FloatArray:
        """Return rows (n, d) with unknown cells drawn from the mixture, given each row's known cells."""
        return self._gaussians.draw_unknown(self.densities(rows), random)

    def extend(self, n_new: int) -> None:
        """Append ``n_new`` columns of which nothing is known yet; they are neutral until learnt."""
        old, width, components = self.n_features, self.n_features + n_new, self.n_components
        means, scatter = np.zeros((components, width)), np.zeros((components, width, width))
        means[:, :old], scatter[:, :old, :old] = self._means, self._scatter
        self._means, self._scatter = means, scatter
        self._ripe = np.append(self._ripe, np.zeros(n_new, dtype=np.bool_))
        self._margins.extend(n_new)
        self._renew()

    def state(self) -> dict[str, Any]:
        """Return all that ``load`` needs: plain values and arrays, copied."""
        arrays = {"counts": self._counts, "means": self._means, "scatter": self._scatter, "ripe": self._ripe}
        return {
            "n_seen": self.n_seen,
            "n_clipped": self.n_clipped,
            "margins": self._margins.state(),
            "folded": self._folded,
            "gaussians": self._gaussians.parameters() if self._folded else None,
            **{name: array.copy() for name, array in arrays.items()},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` returned; from here on the two behave alike, bit for bit."""
        self.n_seen, self.n_clipped = int(state["n_seen"]), int(state["n_clipped"])
        arrays = (np.array(state[name], dtype=np.float64) for name in ("counts", "means", "scatter"))
        self._counts, self._means, self._scatter = arrays
        self._ripe = np.array(state["ripe"], dtype=np.bool_)
        self._margins.load(state["margins"])
        self._renew()
        if state["gaussians"] is not None:
            self._folded = float(state["folded"])
            parameters = {name: np.array(part, dtype=np.float64) for name, part in state["gaussians"].items()}
            self._gaussians = Gaussians(**parameters)

    def _anchor(self, rows: FloatArray, weights: FloatArray) -> Densities:
        """Give columns that were never seen a place to start from, and evaluate the rows."""
        self.densities(rows[:0])  # refuses a wrong shape before anything changes
        used = rows[weights > 0.0]
        if self._margins.anchor(np.clip(used, -CLIP, CLIP), ~np.isnan(used)):
            if not self._counts.any():
                self._ripe = self._margins.seen.copy()
                self._means[:] = self._margins.mean
            self._isolate()
            self._renew()
        return self.densities(rows)

    def _fold(self, now: Densities, trust: FloatArray) -> None:
        """Fold rows into the sufficient statistics; ``trust`` (n, K) are their weights per component."""
        row_trust = trust.sum(axis=1)
        keep = self.config.forgetting ** float(row_trust.sum())
        fresh, old = trust.sum(axis=0), keep * self._counts
        centre = self._margins.mean
        first, second = _moments(now.rows, trust, centre) if now.known is None else self._completed(now, trust, centre)
        self._counts = old + fresh
        if now.known is None:
            self._margins.fold(row_trust.sum(), first.sum(axis=0), np.einsum("kdd->d", second), keep)
        else:
            self._margins.learn(now.rows, now.known, row_trust, keep)
        inverse = 1.0 / np.maximum(self._counts, 1e-300)
        per_fresh = 1.0 / np.maximum(fresh, 1e-12)
        # Scatter within the batch is sum w z z^T - s s^T / n; between batch and past it is n N / (n + N) times the
        # square of their means' distance: both stay positive, unlike the textbook difference.
        apart = first - fresh[:, None] * (self._means - centre)
        outer = np.empty((2, *first.shape))
        np.multiply(apart, np.sqrt(old * per_fresh * inverse * inverse)[:, None], out=outer[0])
        np.multiply(first, np.sqrt(per_fresh * inverse)[:, None], out=outer[1])
        second *= inverse[:, None, None]
        second += outer.transpose(1, 2, 0) @ (outer * _SIGNS).transpose(1, 0, 2)
        self._scatter *= (old * inverse)[:, None, None]
        self._scatter += second
        self._means = self._means + apart * inverse[:, None]
        self._folded += float(fresh.sum())
        ripe = bool(self._ripe.all())
        if not ripe:
            self._isolate()
            self._ripe |= self._margins.seen & (self._margins.count >= RIPE_SHARE * self._counts.sum())
        if not ripe or self._folded >= min(STALE_ROWS, STALE_SHARE * self._counts.sum()):
            self._renew()

    def _completed(self, now: Densities, trust: FloatArray, centre: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ``_moments`` of rows with unknown cells: their expectation, given each row's known cells."""
        assert now.known is not None
        first, second = np.zeros_like(self._means), np.zeros_like(self._scatter)
        for where, columns in patterns(now.known):
            rows, weights = now.rows[where], trust[where]
            if len(columns) == self.n_features:
                whole_first, whole_second = _moments(rows, weights, centre)
                first += whole_first
                second += whole_second
                continue
            unknown = np.setdiff1d(np.arange(self.n_features), columns)
            given = self._gaussians.conditional(columns, unknown)
            means = self._gaussians.means
            guess = (rows[:, columns] - means[:, None, columns]) @ given.gain.transpose(0, 2, 1)
            off = np.repeat((rows - centre)[None], self.n_components, axis=0)
            off[:, :, unknown] = guess + (means[:, unknown] - centre[unknown])[:, None, :]
            weighted = off * weights.T[:, :, None]
            first += weighted.sum(axis=1)
            second += weighted.transpose(0, 2, 1) @ off
            second[:, unknown[:, None], unknown] += weights.sum(axis=0)[:, None, None] * given.covariance
        return first, second

    def _isolate(self) -> None:
        """Model the unripe columns by their margins alone."""
        lone = np.flatnonzero(~self._ripe)
        self._scatter[:, lone, :] = 0.0
        self._scatter[:, :, lone] = 0.0
        self._scatter[:, lone, lone] = self._margins.spread[lone]
        self._means[:, lone] = self._margins.mean[lone]

    def _renew(self) -> None:
        """Derive the Gaussians from the sufficient statistics."""
        width, counts = self.n_features, self._counts
        self._consistency = _consistency(width, self.config.degrees_of_freedom)
        self._all_seen = bool(self._margins.seen.all())
        pooled = self._margins.variance(self._consistency)
        prior = SHRINKAGE * (width + 2)
        covariances = self._scatter * (counts / (self._consistency * (counts + prior)))[:, None, None]
        diagonal = np.einsum("kdd->kd", covariances)
        diagonal += (prior / (counts + prior))[:, None] * pooled + VARIANCE_FLOOR
        if not self._ripe.all():
            diagonal[:, ~self._ripe] = pooled[~self._ripe] + VARIANCE_FLOOR
        total = counts.sum()
        weights = counts / total if total > 0.0 else np.full(len(counts), 1.0 / len(counts))
        self._gaussians = Gaussians(weights, self._means, covariances)
        self._folded = 0.0  # rows learnt since


def _moments(rows: FloatArray, trust: FloatArray, centre: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the weighted sums (K, d) of ``rows - centre`` and (K, d, d) of its squares, all K in one product."""
    off = rows - centre
    (n_rows, width), n_components = off.shape, trust.shape[1]
    second = np.zeros((n_components * width, width))
    chunk = max(16, CACHED_DOUBLES // max(1, n_components * width))
    for start in range(0, n_rows, chunk):
        some = off[start : start + chunk]
        weighted = trust[start : start + chunk, :, None] * some[:, None, :]
        second += weighted.reshape(len(some), n_components * width).T @ some
    return trust.T @ off, second.reshape(n_components, width, width)


@lru_cache(maxsize=256)
def _consistency(width: int, degrees_of_freedom: float) -> float:
    """Return by how much robust weights shrink the variance of Gaussian rows: ``E[u x] / (d E[u])``, x chi-squared."""
    if not width:
        return 1.0
    squared = 2.0 * gammaincinv(width / 2.0, (np.arange(1000) + 0.5) / 1000.0)
    trust = np.minimum(1.0, (degrees_of_freedom + width) / (degrees_of_freedom + squared))
    return float((trust * squared).sum() / (width * trust.sum()))
