"""K Gaussians with fixed parameters: densities, contributions and guesses for rows with unknown cells. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eacgm.streams.whitening import (
    BoolArray,
    Conditional,
    FloatArray,
    IntArray,
    Whitening,
    conditional,
    marginal,
    patterns,
    whiten,
)

_LOG_2PI = float(np.log(2.0 * np.pi))
#: marginals kept ready; each distinct set of known cells needs one
_CACHED_PATTERNS = 256


@dataclass(frozen=True, slots=True)
class Densities:
    """What K Gaussians say of n rows.

    ``rows`` (n, d) as used, unknown cells 0; ``known`` (n, d), None if all cells are; ``responsibilities`` (n, K)
    sum to 1; ``squared_distances`` (n, K) count 1, its expectation, for each unknown cell; ``scores`` (n,) are
    negative log-densities in nats.
    """

    rows: FloatArray
    known: BoolArray | None
    responsibilities: FloatArray
    squared_distances: FloatArray
    scores: FloatArray


class Gaussians:
    """A mixture of K Gaussians over d columns.

    ``weights`` (K,) sum to 1, ``means`` (K, d), ``covariances`` (K, d, d) symmetric positive definite.
    Raises ``EacgmError`` if a covariance is not.

    An unknown cell is neutral: the score of a row is what the whole row's score is expected to be given its known
    cells, that is ``-log p(known)`` plus the entropy of the unknown cells (averaged by responsibility).
    """

    def __init__(self, weights: FloatArray, means: FloatArray, covariances: FloatArray) -> None:
        self.weights, self.means, self.covariances = weights, means, covariances
        self._whole = whiten(means, covariances)
        self._log_weights = np.log(np.maximum(weights, 1e-300))
        self._marginals: dict[bytes, Whitening] = {}

    def parameters(self) -> dict[str, FloatArray]:
        """Return copies of ``weights``, ``means`` and ``covariances``; the constructor takes them back."""
        return {"weights": self.weights.copy(), "means": self.means.copy(), "covariances": self.covariances.copy()}

    def densities(self, rows: FloatArray, known: BoolArray | None) -> Densities:
        """Evaluate rows (n, d); ``known`` (n, d) is None if all cells are."""
        if known is None:
            distances = self._whole.squared_distances(rows)
            log_joint = self._log_joint(distances, self._whole, self.means.shape[1])
            scores, responsibilities = _normalise(log_joint)
            return Densities(rows, None, responsibilities, distances, scores)
        log_joint = np.empty((len(rows), len(self.weights)))
        distances, entropy = np.empty_like(log_joint), np.empty_like(log_joint)
        for where, columns in patterns(known):
            part = self._marginal(columns)
            n_unknown = rows.shape[1] - len(columns)
            apart = part.squared_distances(rows[where[:, None], columns])
            log_joint[where] = self._log_joint(apart, part, len(columns))
            distances[where] = apart + n_unknown
            entropy[where] = 0.5 * (self._whole.log_det - part.log_det + n_unknown * (1.0 + _LOG_2PI))
        scores, responsibilities = _normalise(log_joint)
        scores += np.einsum("nk,nk->n", responsibilities, entropy)
        return Densities(rows, known, responsibilities, distances, scores)

    def contributions(self, now: Densities) -> FloatArray:
        """Return each column's share (n, d) in a row's anomaly: non-negative, rows sum to 1, unknown cells have 0.

        Conditional contributions ``(P (x - m))_i^2 / P_ii`` with the precision ``P``: how far a cell is from what the
        row's other cells say of it; components are averaged by responsibility. Without any known cell, equal shares.
        """
        known = np.ones(now.rows.shape, dtype=np.bool_) if now.known is None else now.known
        shares = np.zeros(now.rows.shape)
        for where, columns in patterns(known):
            if not len(columns):
                continue
            precisions = self._marginal(columns).precisions()
            off = now.rows[where[:, None], columns] - self.means[:, None, columns]
            pull = np.square(off @ precisions) / np.einsum("kdd->kd", precisions)[:, None, :]
            shares[where[:, None], columns] = np.einsum("nk,knd->nd", now.responsibilities[where], pull)
        candidates = np.where(known.any(axis=1, keepdims=True), known, True)
        shares = np.where(shares.sum(axis=1, keepdims=True) > 1e-200, shares, candidates)
        total: FloatArray = shares.sum(axis=1, keepdims=True)
        return shares / total

    def draw_unknown(self, now: Densities, random: np.random.Generator) -> FloatArray:
        """Return rows (n, d), unknown cells drawn from the row's likeliest component given its known cells."""
        if now.known is None:
            return now.rows
        filled, likeliest = now.rows.copy(), now.responsibilities.argmax(axis=1)
        for where, columns in patterns(now.known):
            unknown = np.setdiff1d(np.arange(now.rows.shape[1]), columns)
            given = self.conditional(columns, unknown)
            noise = random.standard_normal((len(where), len(unknown)))
            for k in np.unique(likeliest[where]):
                some = likeliest[where] == k
                off = now.rows[where[some][:, None], columns] - self.means[k, columns]
                drawn = noise[some] @ np.linalg.cholesky(given.covariance[k]).T
                filled[where[some][:, None], unknown] = self.means[k, unknown] + off @ given.gain[k].T + drawn
        return filled

    def conditional(self, known: IntArray, unknown: IntArray) -> Conditional:
        """Return what the known columns say of the unknown ones."""
        return conditional(self.covariances, known, unknown, self._marginal(known))

    def _marginal(self, columns: IntArray) -> Whitening:
        if len(columns) == self.means.shape[1]:
            return self._whole
        key = columns.tobytes()
        if key not in self._marginals:
            if len(self._marginals) >= _CACHED_PATTERNS:
                self._marginals.clear()
            self._marginals[key] = marginal(self.means, self.covariances, columns)
        return self._marginals[key]

    def _log_joint(self, distances: FloatArray, part: Whitening, n_known: int) -> FloatArray:
        return distances * -0.5 + (self._log_weights - 0.5 * (part.log_det + n_known * _LOG_2PI))


def _normalise(log_joint: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return negative log-densities (n,) and responsibilities (n, K) by log-sum-exp."""
    peak = log_joint.max(axis=1, keepdims=True) if log_joint.size else log_joint[:, :1]
    shares = np.exp(log_joint - peak)
    total = shares.sum(axis=1, keepdims=True)
    shares /= total
    return -(np.log(total) + peak)[:, 0], shares
