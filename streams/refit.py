"""The mixture fitted anew, in the background, on the reservoir: as many components as the rows bear out.

The online mixture follows slow changes but never splits a component; a refit may. It starts at one window and is
swapped in at a later one, whether or not it was ready sooner: results do not depend on the machine's speed.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from eacgm.config import MixtureConfig
from eacgm.streams.margins import Margins
from eacgm.streams.mixture import CLIP, RIPE_SHARE, VARIANCE_FLOOR, Mixture
from eacgm.streams.reservoir import Reservoir
from eacgm.streams.whitening import FloatArray

#: a mixture of K needs this many rows per component and column
_ROWS_PER_COLUMN = 5
_MAX_ITERATIONS = 60
#: windows from a refit's start to its swap
LAG_WINDOWS = 10


def refit(rows: FloatArray, mixture: Mixture) -> Mixture:
    """Return a new mixture fitted to rows (n, d), warm-started from ``mixture``, its K in 1, 2, 4, 8 ... by BIC.

    Unknown cells are drawn from ``mixture``, seeded; columns that are mostly unknown are left to their margins.
    """
    config = mixture.config
    rows, known = np.clip(rows, -CLIP, CLIP), ~np.isnan(rows)
    margins = Margins(rows.shape[1])
    margins.anchor(rows, known)
    margins.learn(rows, known, np.ones(len(rows)), 1.0)
    ripe = np.flatnonzero(margins.count >= RIPE_SHARE * len(rows))
    filled = mixture.draw_unknown(rows, np.random.default_rng(config.seed))
    weights, means, covariances = _best_fit(filled[:, ripe], mixture, ripe)
    all_means = np.repeat(margins.mean[None], len(weights), axis=0)
    all_means[:, ripe] = means
    all_covariances = np.zeros((len(weights), rows.shape[1], rows.shape[1]))
    all_covariances[:, ripe[:, None], ripe] = covariances
    fitted = Mixture.from_parameters((weights, all_means, all_covariances), margins, float(len(rows)), config)
    fitted.n_seen, fitted.n_clipped = mixture.n_seen, mixture.n_clipped
    return fitted


def _best_fit(rows: FloatArray, mixture: Mixture, columns: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the weights, means and covariances (without the floor) of the fit with the lowest BIC."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture  # half a second to import, and only refits need it

    # too few iterations, or fewer distinct rows than components: the criterion judges what came of it
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    n_rows, width = rows.shape
    if not width:
        return np.ones(1), np.zeros((1, 0)), np.zeros((1, 0, 0))
    best, lowest = None, np.inf
    with threadpool_limits(1):
        n_components = 1
        while n_components <= mixture.config.max_components:
            if n_components > 1 and n_rows < _ROWS_PER_COLUMN * n_components * (width + 2):
                break
            start = _warm_start(mixture, columns) if n_components == mixture.n_components > 1 else {}
            candidate = GaussianMixture(
                n_components,
                reg_covar=VARIANCE_FLOOR,
                max_iter=_MAX_ITERATIONS,
                random_state=mixture.config.seed,
                **start,
            ).fit(rows)
            criterion = candidate.bic(rows)
            if criterion >= lowest and n_components > mixture.n_components:
                # rows that do not bear out K components will not bear out 2 K
                break
            if criterion < lowest:
                best, lowest = candidate, criterion
            n_components *= 2
    assert best is not None
    floor = VARIANCE_FLOOR * np.eye(width)
    return best.weights_, best.means_, best.covariances_ - floor


def _warm_start(mixture: Mixture, columns: Any) -> dict[str, FloatArray]:
    now = mixture.gaussians
    covariances = now.covariances[:, columns[:, None], columns]
    return {
        "weights_init": now.weights / now.weights.sum(),
        "means_init": now.means[:, columns],
        "precisions_init": np.linalg.inv(0.5 * (covariances + covariances.transpose(0, 2, 1))),
    }


class _Running:
    """A refit under way: what it started from, and the thread that works on it."""

    def __init__(self, start: int, rows: FloatArray, mixture: Mixture) -> None:
        self.start, self.rows, self.mixture = start, rows, mixture
        self._outcome: Mixture | BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="eacgm-refit", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._outcome = refit(self.rows, self.mixture)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits for the result
            self._outcome = error

    def result(self) -> Mixture:
        """Wait for the new mixture."""
        self._thread.join()
        if isinstance(self._outcome, Mixture):
            return self._outcome
        raise self._outcome or RuntimeError("refit ended without a result")


class RefitSchedule:
    """When to refit: soon after the warm-up, then at doubling intervals up to ``refit_every_windows``.

    ``step`` is called once a window; the swap comes ``LAG_WINDOWS`` windows after the start.
    """

    def __init__(self, config: MixtureConfig, first_window: int = 40) -> None:
        self.config = config
        self.n_refits = 0
        self._interval = min(first_window, config.refit_every_windows)
        self._next_start = self._interval
        self._running: _Running | None = None

    def step(self, window: int, mixture: Mixture, reservoir: Reservoir) -> Mixture | None:
        """Start a refit if one is due, and return a mixture in the window in which it takes over, else None.

        Waits for the background thread in that window only.
        """
        running = self._running
        if running is None:
            if window >= self._next_start and len(reservoir) >= _ROWS_PER_COLUMN * (mixture.n_features + 2):
                self._start(window, reservoir.rows(), mixture)
            return None
        if window < running.start + LAG_WINDOWS:
            return None
        fitted = running.result()
        self._running = None
        self._interval = min(2 * self._interval, self.config.refit_every_windows)
        self._next_start = running.start + max(self._interval, LAG_WINDOWS + 1)
        self.n_refits += 1
        if mixture.n_features > fitted.n_features:
            fitted.extend(mixture.n_features - fitted.n_features)
        return fitted

    def hasten(self, window: int) -> None:
        """Refit at ``window`` already and at short intervals again, as after a change of regime."""
        self._running = None
        self._interval = min(LAG_WINDOWS + 1, self.config.refit_every_windows)
        self._next_start = window

    def state(self) -> dict[str, Any]:
        """Return all that ``load`` needs; of a refit under way what it started from, not the thread."""
        running = self._running
        return {
            "n_refits": self.n_refits,
            "interval": self._interval,
            "next_start": self._next_start,
            "running": running
            and {"start": running.start, "rows": running.rows.copy(), "mixture": running.mixture.state()},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` returned; a refit under way starts over from the same rows."""
        self.n_refits, self._interval = int(state["n_refits"]), int(state["interval"])
        self._next_start, self._running = int(state["next_start"]), None
        if state["running"]:
            frozen = state["running"]
            rows = np.array(frozen["rows"], dtype=np.float64)
            self._running = _Running(int(frozen["start"]), rows, self._copy(frozen["mixture"]))

    def _start(self, window: int, rows: FloatArray, mixture: Mixture) -> None:
        self._running = _Running(window, rows, self._copy(mixture.state()))

    def _copy(self, state: dict[str, Any]) -> Mixture:
        copy = Mixture(np.asarray(state["means"]).shape[1], self.config)
        copy.load(state)
        return copy
