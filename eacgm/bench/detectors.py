"""Average precision of the online mixture on labelled server data, beside baselines; without point adjustment.

A data set is a folder of ``.npz`` files with ``train`` (n, d), ``test`` (m, d) and ``label`` (m,), in time order. Every
detector sees ``train`` (unlabelled, taken as mostly normal) standardised; the online ones then score each batch of
``test`` before they may learn from it. Point-adjusted scores are not reported: random numbers do well by them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from eacgm.config import MixtureConfig
from eacgm.errors import InputError, UsageError
from eacgm.streams.calibration import Calibration
from eacgm.streams.gate import Gate
from eacgm.streams.mixture import Mixture
from eacgm.streams.refit import RefitSchedule
from eacgm.streams.reservoir import Reservoir
from eacgm.streams.whitening import FloatArray

#: standardised values are cut here: what is this far off is anomalous by any measure
CLIP_DEVIATIONS = 40.0
#: rows the online mixture scores and then learns together
BATCH_ROWS = 32
#: every so many batches one is only calibrated on
HELD_OUT_EVERY = 3
UNUSUAL_P_VALUE = 1e-3
#: fits see at most this many rows of the training set, evenly spaced, so that a run takes minutes
FIT_ROWS = 10_000
_KEY = np.zeros(1, dtype=np.int64)

Detector = Callable[[FloatArray, FloatArray], FloatArray]


def run(folder: Path | None) -> list[dict[str, Any]]:
    """Return a row per file and detector with its average precision and seconds, and the means at the end.

    Raises ``UsageError`` without a folder, ``InputError`` for a folder or file without the data.
    """
    if folder is None:
        raise UsageError("no folder of data; expected one with .npz files of train, test and label")
    files = sorted(folder.rglob("*.npz"))
    if not files:
        raise InputError("no .npz file; expected files of train, test and label", path=str(folder))
    rows = [row for file in files for row in _judge(file)]
    for name in DETECTORS:
        mine = [row for row in rows if row["detector"] == name]
        mean = round(float(np.mean([row["average_precision"] for row in mine])), 3)
        rows.append({"data": "mean", "detector": name, "average_precision": mean})
    return rows


def _judge(file: Path) -> list[dict[str, Any]]:
    from sklearn.metrics import average_precision_score  # half a second to import

    train, test, labels = _load(file)
    rows = []
    for name, detector in DETECTORS.items():
        start = time.perf_counter()
        scores = detector(train, test)
        seconds = time.perf_counter() - start
        precision = round(float(average_precision_score(labels, scores)), 3)
        row = {"data": file.stem, "detector": name, "average_precision": precision, "seconds": round(seconds, 1)}
        rows.append(row)
    return rows


def _load(file: Path) -> tuple[FloatArray, FloatArray, Any]:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            train, test = (np.asarray(arrays[name], dtype=np.float64) for name in ("train", "test"))
            labels = np.asarray(arrays["label"]) > 0
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"cannot be read ({error}); expected train, test and label", path=str(file)) from None
    if train.ndim != 2 or test.ndim != 2 or train.shape[1] != test.shape[1] or labels.shape != test.shape[:1]:
        shapes = f"{train.shape}, {test.shape}, {labels.shape}"
        raise InputError(f"shapes are {shapes}; expected (n, d), (m, d), (m,)", path=str(file))
    middle, spread = train.mean(axis=0), train.std(axis=0)
    spread = np.where(spread > 1e-6, spread, 1.0)
    clean = (np.clip((rows - middle) / spread, -CLIP_DEVIATIONS, CLIP_DEVIATIONS) for rows in (train, test))
    return next(clean), next(clean), labels


def online_mixture(train: FloatArray, test: FloatArray) -> FloatArray:
    """Score ``test`` with the mixture that keeps learning: gated, calibrated on held-out batches, refitted."""
    config = MixtureConfig(refit_every_windows=256, forgetting=0.99998)
    mixture, reservoir = Mixture(train.shape[1], config), Reservoir(train.shape[1], FIT_ROWS, config.seed)
    schedule, calibration, gate = RefitSchedule(config, first_window=16), Calibration(), Gate()
    held_out = Reservoir(train.shape[1], FIT_ROWS // HELD_OUT_EVERY, config.seed)
    rows = np.concatenate((train, test))
    scores = np.empty(len(rows))
    for window, start in enumerate(range(0, len(rows), BATCH_ROWS)):
        batch = rows[start : start + BATCH_ROWS]
        now = mixture.densities(batch)
        scores[start : start + BATCH_ROWS] = now.scores
        unusual = calibration.p_values(now.scores) < UNUSUAL_P_VALUE
        passage = gate.observe(_KEY, np.array([unusual.mean() > 0.5]))
        if passage.adopted:
            calibration.reanchor(now.scores)
            unusual[:] = False
        if window % HELD_OUT_EVERY == 0:
            if passage.calibrate[0]:
                calibration.add(now.scores)
                held_out.offer(batch)
        elif passage.learn[0]:
            reservoir.offer(batch[~unusual])
            mixture.learn(batch, (~unusual).astype(np.float64), now)
        fitted = schedule.step(window, mixture, reservoir)
        if fitted is not None:
            mixture = fitted
            calibration.reanchor(mixture.score(held_out.rows()))
    return scores[len(train) :]


def static_mixture(train: FloatArray, test: FloatArray) -> FloatArray:
    """Score with scikit-learn's mixture of four, fitted once."""
    return _fitted(train, test, 4)


def one_gaussian(train: FloatArray, test: FloatArray) -> FloatArray:
    """Score with one Gaussian, fitted once."""
    return _fitted(train, test, 1)


def principal_components(train: FloatArray, test: FloatArray) -> FloatArray:
    """Score by the squared distance from the principal components that hold nine tenths of the variance."""
    from sklearn.decomposition import PCA

    components = PCA(n_components=0.9, svd_solver="full").fit(train)
    residual = test - components.inverse_transform(components.transform(test))
    return np.asarray(np.square(residual).sum(axis=1))


def isolation_forest(train: FloatArray, test: FloatArray) -> FloatArray:
    """Score with an isolation forest of a hundred trees."""
    from sklearn.ensemble import IsolationForest

    return np.asarray(-IsolationForest(random_state=0).fit(train).score_samples(test))


def random_scores(train: FloatArray, test: FloatArray) -> FloatArray:
    """Score by chance, to show what the labels alone give."""
    return np.random.default_rng(len(train)).random(len(test))


def _fitted(train: FloatArray, test: FloatArray, n_components: int) -> FloatArray:
    from sklearn.mixture import GaussianMixture

    step = max(1, len(train) // FIT_ROWS)
    model = GaussianMixture(n_components, reg_covar=1e-2, max_iter=300, random_state=0).fit(train[::step])
    return np.asarray(-model.score_samples(test))


DETECTORS: dict[str, Detector] = {
    "online mixture": online_mixture,
    "static mixture": static_mixture,
    "one Gaussian": one_gaussian,
    "PCA": principal_components,
    "isolation forest": isolation_forest,
    "random": random_scores,
}
