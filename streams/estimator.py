"""The mixture as an estimator by River's conventions: dictionaries in, no units asked, no windows and no ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from river import base

from eacgm.config import MixtureConfig
from eacgm.streams.calibration import Calibration
from eacgm.streams.gate import Gate
from eacgm.streams.mixture import Mixture
from eacgm.streams.refit import refit
from eacgm.streams.reservoir import Reservoir
from eacgm.streams.whitening import BoolArray, FloatArray

#: rows that wait to be learnt together
_BATCH_ROWS = 32
#: the units are set anew, and the mixture fitted anew, at this many rows, then at each doubling
_FIRST_FIT_ROWS = 8
#: with fewer rows a fit is one component, learnt online
_LEAST_REFIT_ROWS = 100
#: every so many rows one is calibrated on and not learnt
_HELD_OUT_EVERY = 4
_UNUSUAL_P_VALUE = 1e-3
_KEY = np.zeros(1, dtype=np.int64)


class GaussianMixtureDetector(base.AnomalyDetector):
    """Incremental Gaussian mixture for anomaly detection; the score is the negative log-density in nats.

    Rows are standardised, scored before they are learnt, and not learnt from if they are unusual; the mixture is
    fitted anew, with as many components as the rows bear out, at doubling numbers of rows and then every
    ``refit_every_rows``. Missing features are neutral, new ones are welcome.

    Parameters
    ----------
    max_components
        The largest number of Gaussians, tried in powers of two.
    forgetting
        What one row leaves of the past, just below 1.
    degrees_of_freedom
        How little far rows are trusted; small is less.
    refit_every_rows
        Rows between two fits of the mixture.
    reservoir_rows
        Rows that a fit sees.
    seed
        Of the reservoir and of the fits.

    Examples
    --------
    >>> import random
    >>> from eacgm.streams.estimator import GaussianMixtureDetector
    >>> rng = random.Random(42)
    >>> model = GaussianMixtureDetector(seed=42)
    >>> for _ in range(500):
    ...     mode = rng.choice((0.0, 10.0))
    ...     model.learn_one({"a": rng.gauss(mode, 1.0), "b": rng.gauss(-mode, 1.0)})
    >>> usual, between = model.score_one({"a": 10.0, "b": -10.0}), model.score_one({"a": 5.0, "b": -5.0})
    >>> usual < 2.0, between - usual > 5.0
    (True, True)
    >>> model.score_one({"a": 10.0}) < between
    True

    """

    def __init__(
        self,
        max_components: int = 8,
        forgetting: float = 0.99998,
        degrees_of_freedom: float = 8.0,
        refit_every_rows: int = 2048,
        reservoir_rows: int = 4096,
        seed: int = 0,
    ) -> None:
        self.max_components = max_components
        self.forgetting = forgetting
        self.degrees_of_freedom = degrees_of_freedom
        self.refit_every_rows = refit_every_rows
        self.reservoir_rows = reservoir_rows
        self.seed = seed
        self.n_rows = 0
        self._columns: dict[Any, int] = {}
        self._pending: list[FloatArray] = []
        self._n_pending = 0
        self._next_fit = _FIRST_FIT_ROWS
        self._location: FloatArray = np.empty(0)
        self._scale: FloatArray = np.empty(0)
        self._mixture = Mixture(0, self._config())
        self._reservoir = Reservoir(0, reservoir_rows, seed)
        self._held_out = Reservoir(0, reservoir_rows // _HELD_OUT_EVERY, seed)
        self._calibration = Calibration()
        self._gate = Gate()

    def learn_one(self, x: dict[Any, float]) -> None:
        """Learn from one row; rows are folded in by small batches."""
        self._meet(x)
        self._queue(self._row(x)[None])

    def score_one(self, x: dict[Any, float]) -> float:
        """Return the row's score in nats, higher is more anomalous; 0 before anything was learnt."""
        return float(self._score(self._row(x)[None])[0])

    def learn_many(self, rows: FloatArray) -> None:
        """Learn from rows (n, d); columns have the names 0, 1, ... and NaN is missing."""
        rows = np.asarray(rows, dtype=np.float64)
        self._meet(dict.fromkeys(range(rows.shape[1])))
        width = rows.shape[1]
        ordered = np.full((len(rows), len(self._columns)), np.nan)
        ordered[:, [self._columns[name] for name in range(width)]] = rows
        self._queue(ordered)

    def score_many(self, rows: FloatArray) -> FloatArray:
        """Return the scores (n,) of rows (n, d), columns as in ``learn_many``."""
        rows = np.asarray(rows, dtype=np.float64)
        ordered = np.full((len(rows), len(self._columns)), np.nan)
        known = [name for name in range(rows.shape[1]) if name in self._columns]
        ordered[:, [self._columns[name] for name in known]] = rows[:, known]
        return self._score(ordered)

    def _config(self) -> MixtureConfig:
        return MixtureConfig(
            max_components=self.max_components,
            forgetting=self.forgetting,
            degrees_of_freedom=self.degrees_of_freedom,
            reservoir_rows=self.reservoir_rows,
            seed=self.seed,
        )

    def _meet(self, names: dict[Any, Any]) -> None:
        fresh = sorted((name for name in names if name not in self._columns), key=lambda name: (str(type(name)), name))
        if not fresh:
            return
        self._flush()
        for name in fresh:
            self._columns[name] = len(self._columns)
        for part in (self._mixture, self._reservoir, self._held_out):
            part.extend(len(fresh))
        self._location = np.append(self._location, np.full(len(fresh), np.nan))
        self._scale = np.append(self._scale, np.ones(len(fresh)))

    def _row(self, x: dict[Any, float]) -> FloatArray:
        row = np.full(len(self._columns), np.nan)
        for name, value in x.items():
            column = self._columns.get(name)
            if column is not None and value is not None:
                row[column] = value
        return row

    def _score(self, rows: FloatArray) -> FloatArray:
        if not self._columns:
            return np.zeros(len(rows))
        return self._mixture.score(self._standardised(rows))

    def _standardised(self, rows: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):
            return (rows - self._location) / self._scale

    def _queue(self, rows: FloatArray) -> None:
        start = 0
        while start < len(rows):
            limit = min(_BATCH_ROWS, self._next_fit - self.n_rows) - self._n_pending
            some = rows[start : start + max(limit, 1)]
            self._pending.append(some)
            self._n_pending += len(some)
            start += len(some)
            if self._n_pending >= _BATCH_ROWS or self.n_rows + self._n_pending >= self._next_fit:
                self._flush()

    def _flush(self) -> None:
        if not self._n_pending:
            return
        rows = np.concatenate(self._pending)
        self._pending, self._n_pending = [], 0
        held_out = (self.n_rows + np.arange(len(rows))) % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1
        self.n_rows += len(rows)
        standardised = self._standardised(rows)
        densities = self._mixture.densities(standardised)
        unusual: BoolArray = self._calibration.p_values(densities.scores) < _UNUSUAL_P_VALUE
        passage = self._gate.observe(_KEY, np.array([unusual.mean() > 0.5]))
        learnt = ~held_out & (~unusual | passage.adopted) & (passage.learn[0] | (unusual.mean() <= 0.5))
        if passage.calibrate[0]:
            self._calibration.add(densities.scores[held_out])
            self._held_out.offer(rows[held_out])
        if passage.adopted:
            self._calibration.reanchor(np.empty(0))
            self._reservoir.clear()
            self._held_out.clear()
        self._reservoir.offer(rows[learnt])
        if self.n_rows >= self._next_fit or passage.adopted:
            self._fit()
        else:
            self._mixture.learn(standardised, learnt.astype(np.float64), densities)

    def _fit(self) -> None:
        """Set units and mixture anew from the reservoir."""
        self._next_fit = self.n_rows + min(self.n_rows, self.refit_every_rows)
        rows = self._reservoir.rows()
        known = np.isfinite(rows).any(axis=0)
        if not known.any():
            return
        finite = np.where(np.isfinite(rows[:, known]), rows[:, known], np.nan)
        self._location[known] = np.nanmedian(finite, axis=0)
        with np.errstate(over="ignore"):
            spread = np.nanstd(finite, axis=0)
        magnitude = np.maximum(np.abs(self._location[known]), 1e-300)
        self._scale[known] = np.where(np.isfinite(spread) & (spread > 1e-9 * magnitude), spread, 1.0)
        standardised = self._standardised(rows)
        fresh = Mixture(len(self._columns), self._config())
        for start in range(0, len(rows), _BATCH_ROWS):
            fresh.learn(standardised[start : start + _BATCH_ROWS])
        fresh.n_seen, fresh.n_clipped = self._mixture.n_seen, self._mixture.n_clipped
        self._mixture = refit(standardised, fresh) if len(rows) >= _LEAST_REFIT_ROWS else fresh
        self._calibration.reanchor(self._mixture.score(self._standardised(self._held_out.rows())))
