"""Covariances turned into whitening matrices, for rows of which some cells may be unknown.

A covariance ``S`` with Cholesky factor ``L`` whitens: the squared length of ``y = L^-1 (x - m)`` is the squared
Mahalanobis distance ``(x - m)^T S^-1 (x - m)``. All components are whitened by one matrix product. A row with unknown
(NaN) cells uses the sub-matrix of its known cells, which is the exact marginal of a Gaussian.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtri

from eacgm.errors import EacgmError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]

#: intermediate arrays are kept to this many doubles, so that they stay in a core's second-level cache
CACHED_DOUBLES = 65_536


@dataclass(frozen=True, slots=True)
class Whitening:
    """K Gaussians over the same ``d`` known cells.

    ``projection`` (d, K * d) holds the transposed ``L_k^-1`` side by side, ``offset`` (K * d,) the whitened means,
    ``log_det`` (K,) the logarithms of the covariances' determinants.
    """

    projection: FloatArray
    offset: FloatArray
    log_det: FloatArray

    def squared_distances(self, rows: FloatArray) -> FloatArray:
        """Return the squared Mahalanobis distances (n, K) of rows (n, d) without NaN."""
        n_components, width = len(self.log_det), self.projection.shape[0]
        chunk = max(16, CACHED_DOUBLES // max(1, n_components * width))
        # One component after the other in memory: the sums over components that follow are then long vector loops.
        out = np.empty((n_components, len(rows))).T
        for start in range(0, len(rows), chunk):
            white = rows[start : start + chunk] @ self.projection
            white -= self.offset
            white = white.reshape(len(white), n_components, width)
            np.einsum("nkd,nkd->nk", white, white, out=out[start : start + chunk])
        return out

    def precisions(self) -> FloatArray:
        """Return the inverse covariances (K, d, d)."""
        width = self.projection.shape[0]
        factors = self.projection.reshape(width, -1, width).transpose(1, 0, 2)
        return factors @ factors.transpose(0, 2, 1)


def whiten(means: FloatArray, covariances: FloatArray) -> Whitening:
    """Factorise covariances (K, d, d), symmetric positive definite, with their means (K, d).

    Raises ``EacgmError`` if one is not positive definite.
    """
    n_components, width = means.shape
    if not width:  # LAPACK refuses it; distances and log-determinants of nothing are 0
        return Whitening(np.empty((0, 0)), np.empty(0), np.zeros(n_components))
    projection = np.empty((width, n_components * width))
    for k in range(n_components):
        # A symmetric matrix reads the same transposed, and transposed it is in LAPACK's order: nothing is copied twice.
        upper, failed = dpotrf(covariances[k].T, lower=0, clean=1)
        if failed:
            raise EacgmError(
                f"covariance of component {k} is not positive definite (minor {failed}); expected finite rows, learnt "
                "by this model; start it anew"
            )
        projection[:, k * width : (k + 1) * width], _ = dtrtri(upper, lower=0)
    blocks = projection.reshape(width, n_components, width)
    offset = (means[:, None, :] @ blocks.transpose(1, 0, 2)).ravel()
    log_det = -2.0 * np.log(np.einsum("dkd->kd", blocks)).sum(axis=1)
    return Whitening(projection, offset, log_det)


def marginal(means: FloatArray, covariances: FloatArray, columns: IntArray) -> Whitening:
    """Factorise the marginal over some columns."""
    return whiten(means[:, columns], covariances[:, columns[:, None], columns])


@dataclass(frozen=True, slots=True)
class Conditional:
    """The Gaussians of the unknown cells given the known ones: ``E[unknown] = mean_u + gain (known - mean_o)``."""

    gain: FloatArray  # (K, n_unknown, n_known)
    covariance: FloatArray  # (K, n_unknown, n_unknown)


def conditional(covariances: FloatArray, known: IntArray, unknown: IntArray, whitening: Whitening) -> Conditional:
    """Return what the known cells say of the unknown ones; ``whitening`` is the known cells' marginal."""
    between = covariances[:, unknown[:, None], known]
    within = covariances[:, unknown[:, None], unknown]
    if not len(known):
        return Conditional(between, within)
    gain = between @ whitening.precisions()
    rest = within - gain @ between.transpose(0, 2, 1)
    return Conditional(gain, 0.5 * (rest + rest.transpose(0, 2, 1)))


def patterns(known: BoolArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield (row indices, known columns) for each distinct row of a mask (n, d), in a fixed order."""
    packed = np.packbits(known, axis=1)
    _, first, group = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    for index, example in enumerate(first):
        yield np.flatnonzero(group == index), np.flatnonzero(known[example])
