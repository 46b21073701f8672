"""Speed of the mixture: rows scored and learnt a second, beside scikit-learn's ``score_samples`` in the same run.

Both take turns, batch by batch, so that a busy machine slows both; the ratio is what to read, the rates are this
machine's. Best of the rounds counts: it is the one that was disturbed least.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from eacgm.config import MixtureConfig
from eacgm.streams.gaussians import Gaussians
from eacgm.streams.margins import Margins
from eacgm.streams.mixture import Mixture
from eacgm.streams.whitening import FloatArray

#: (columns, components, rows in a batch)
SIZES = ((16, 4, 8), (16, 4, 64), (16, 4, 256), (16, 4, 1024), (32, 8, 8), (32, 8, 64), (32, 8, 256), (32, 8, 1024))
_WORTH_ROWS = 5000.0


def run(seconds_per_size: float = 2.0, seed: int = 0) -> list[dict[str, Any]]:
    """Return one row per size, each measured for about so long.

    ``score_learn``, ``score`` and ``scikit_score`` are rows per second; the ratios are to scikit-learn's scoring alone.
    """
    return [_measure(*size, seconds_per_size, seed) for size in SIZES]


def _measure(n_features: int, n_components: int, batch_rows: int, seconds: float, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    mixture = _mixture(n_features, n_components, random)
    batches = [_draw(mixture.gaussians, batch_rows, random) for _ in range(16)]
    reference = _reference(mixture.gaussians)

    def score_and_learn(rows: FloatArray) -> None:
        mixture.learn(rows, None, mixture.densities(rows))

    takers: tuple[Callable[[FloatArray], object], ...] = (score_and_learn, mixture.score, reference)
    best = [np.inf] * len(takers)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for index, taker in enumerate(takers):
            for rows in batches:
                start = time.perf_counter()
                taker(rows)
                best[index] = min(best[index], time.perf_counter() - start)
    both, score, scikit = (batch_rows / shortest for shortest in best)
    return {
        "features": n_features,
        "components": n_components,
        "batch_rows": batch_rows,
        "score_learn_rows_per_second": round(both),
        "score_rows_per_second": round(score),
        "scikit_score_rows_per_second": round(scikit),
        "score_learn_to_scikit_score": round(both / scikit, 2),
        "score_to_scikit_score": round(score / scikit, 2),
    }


def _mixture(n_features: int, n_components: int, random: np.random.Generator) -> Mixture:
    margins = Margins(n_features)
    margins.seen[:], margins.count[:], margins.spread[:] = True, _WORTH_ROWS, 2.0
    factors = random.normal(size=(n_components, n_features, 2 * n_features))
    covariances = factors @ factors.transpose(0, 2, 1) / (2 * n_features)
    parameters = (
        np.full(n_components, 1.0 / n_components),
        random.normal(size=(n_components, n_features)),
        covariances,
    )
    return Mixture.from_parameters(parameters, margins, _WORTH_ROWS, MixtureConfig())


def _draw(gaussians: Gaussians, n_rows: int, random: np.random.Generator) -> FloatArray:
    chosen = random.integers(len(gaussians.weights), size=n_rows)
    factors = np.linalg.cholesky(gaussians.covariances)[chosen]
    noise = random.normal(size=(n_rows, gaussians.means.shape[1]))
    rows: FloatArray = gaussians.means[chosen] + np.einsum("nij,nj->ni", factors, noise)
    return rows


def _reference(gaussians: Gaussians) -> Callable[[FloatArray], object]:
    from sklearn.mixture import GaussianMixture  # half a second to import

    reference = GaussianMixture(len(gaussians.weights))
    reference.weights_, reference.means_ = gaussians.weights, gaussians.means
    reference.covariances_ = gaussians.covariances
    reference.precisions_cholesky_ = np.linalg.cholesky(np.linalg.inv(gaussians.covariances))
    score: Callable[[FloatArray], object] = reference.score_samples
    return score
