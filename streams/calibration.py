"""Scores to p-values, from scores of held-out rows: ones that the model was calibrated on but never learnt from.

Within the range of the held-out scores the p-value is conformal, ``(1 + #{held-out >= score}) / (n + 1)``, which is
never too small for an exchangeable score, whatever its distribution. Beyond it, a generalised-Pareto tail goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np

from eacgm.config import DetectConfig
from eacgm.streams.whitening import FloatArray

#: with fewer held-out scores there is no p-value
LEAST_SCORES = 20
#: the tail is fitted to this share of the scores, within these numbers of scores
_TAIL_SHARE, _TAIL_LEAST, _TAIL_MOST = 0.1, 10, 400
#: the sorted scores and the tail are renewed once this share of them is new
_RENEWED_SHARE = 1.0 / 32.0
#: drift: the share of held-out scores with p below DRIFT_LEVEL, over about DRIFT_ROWS of them
_DRIFT_LEVEL, _DRIFT_ROWS, _DRIFT_MOST = 0.1, 256.0, 10.0
_SECONDS_PER_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Tail:
    """A generalised-Pareto tail: ``P(score > s | score > start) = (1 + shape (s - start) / scale)^(-1 / shape)``."""

    start: float
    scale: float
    shape: float

    def survival(self, scores: FloatArray) -> FloatArray:
        """Return the probability (n,) that a score beyond ``start`` is beyond each of ``scores``."""
        excess = np.maximum(scores - self.start, 0.0) / self.scale
        if self.shape < 1e-9:
            return np.exp(-excess)
        return np.exp(np.log1p(self.shape * excess) / -self.shape)


def fit_tail(scores: FloatArray, start: float) -> Tail:
    """Fit a tail to scores beyond ``start`` (Zhang and Stephens 2009), its shape drawn towards 1/2 and never below 0.

    The pull (as in Pareto-smoothed importance sampling, worth 10 scores) and the bound err on the side of larger
    p-values: few scores must not promise a short tail.
    """
    excess = np.sort(scores) - start
    excess = excess[excess > 0.0]
    n = len(excess)
    if n < 5 or excess[-1] < 1e-12:
        return Tail(start, max(float(excess.mean()) if n else 0.0, 1e-3), 0.5)
    quartile = max(excess[int(n / 4 + 0.5) - 1], 1e-9 * excess[-1])
    n_candidates = 30 + int(np.sqrt(n))
    order = np.arange(1, n_candidates + 1)
    candidates = 1.0 / excess[-1] + (1.0 - np.sqrt(n_candidates / (order - 0.5))) / (3.0 * quartile)
    shapes = np.log1p(-candidates[:, None] * excess).mean(axis=1)
    likelihood = n * (np.log(-candidates / shapes) - shapes - 1.0)
    weights = np.exp(likelihood - likelihood.max())
    chosen = float(candidates @ weights / weights.sum())
    shape = float(np.log1p(-chosen * excess).mean())
    scale = -shape / chosen
    return Tail(start, max(scale, 1e-9), max((n * shape + 10.0 * 0.5) / (n + 10.0), 0.0))


def p_threshold(detect: DetectConfig, rows_per_second: float, recurrence: float = 0.0) -> float:
    """Return the p-value below which ``persistence_windows`` of ``persistence_of`` windows make an alarm.

    So that chance raises ``false_alarms_per_day`` alarms on ``rows_per_second``. ``recurrence`` is the probability that
    an unusual window is followed by another by chance: windows that are not independent need a lower threshold.

    >>> round(p_threshold(DetectConfig(), rows_per_second=8.0), 5)
    0.00622
    """
    needed = detect.persistence_windows
    window = max(detect.persistence_of, needed)
    starts_per_day = _SECONDS_PER_DAY * max(rows_per_second, 1e-9) * comb(window - 1, needed - 1)
    chance = detect.false_alarms_per_day / starts_per_day
    independent = chance ** (1.0 / needed)
    if recurrence > independent:
        independent = chance / recurrence ** (needed - 1)
    return float(min(independent, 0.05))


class Calibration:
    """The last ``capacity`` held-out scores, and the p-values that follow from them.

    Slow drift makes p-values larger, never smaller: if more held-out scores than expected are high, all p-values are
    multiplied by the excess. A new model or regime is taken over by ``reanchor``.
    """

    def __init__(self, capacity: int = 4096) -> None:
        self.capacity = capacity
        self.drift = 1.0
        self._scores: FloatArray = np.empty(0)
        self._sorted: FloatArray = self._scores
        self._n_fresh = self._n_tail = 0
        self._high_share = _DRIFT_LEVEL
        self._tail: Tail | None = None
        self._fence = float(np.inf)

    def __len__(self) -> int:
        return len(self._scores)

    def add(self, scores: FloatArray) -> None:
        """Take in held-out scores (n,), oldest first; scores that are not finite are left out."""
        scores = np.asarray(scores, dtype=np.float64)
        scores = scores[np.isfinite(scores)]
        if not len(scores):
            return
        if len(self._sorted) >= LEAST_SCORES:
            high = float((self._raw_p_values(scores) < _DRIFT_LEVEL).mean())
            memory = float(np.exp(-len(scores) / _DRIFT_ROWS))
            self._high_share = memory * self._high_share + (1.0 - memory) * high
            self.drift = float(np.clip(self._high_share / _DRIFT_LEVEL, 1.0, _DRIFT_MOST))
        self._scores = np.concatenate((self._scores, scores))[-self.capacity :]
        self._n_fresh += len(scores)
        if self._n_fresh >= _RENEWED_SHARE * len(self._scores):
            self._renew(self._high_share)

    def reanchor(self, scores: FloatArray) -> None:
        """Start anew from held-out scores (n,) by another model, or from none."""
        self._scores = np.empty(0)
        self.drift = 1.0
        self._renew()
        self.add(scores)

    def p_values(self, scores: FloatArray) -> FloatArray:
        """Return the p-values (n,) of scores, in (0, 1]; NaN while fewer than ``LEAST_SCORES`` are held out."""
        scores = np.asarray(scores, dtype=np.float64)
        if len(self._sorted) < LEAST_SCORES:
            return np.full(scores.shape, np.nan)
        return np.minimum(1.0, self.drift * self._raw_p_values(scores))

    def fence(self) -> float:
        """Return a score only rows of another kind exceed: five times as far over the median as the 90th percentile."""
        return self._fence

    def threshold(self, p_value: float) -> float:
        """Return the lowest score whose p-value is at most ``p_value``, infinity if there is none."""
        if len(self._sorted) < LEAST_SCORES:
            return float(np.inf)
        low, step = float(self._sorted[0]), 1.0
        while self.p_values(np.array([low + step]))[0] > p_value:
            step *= 2.0
            if step > 1e12:
                return float(np.inf)
        bottom, top = low, low + step
        for _ in range(60):
            middle = 0.5 * (bottom + top)
            bottom, top = (middle, top) if self.p_values(np.array([middle]))[0] > p_value else (bottom, middle)
        return top

    def state(self) -> dict[str, Any]:
        """Return all that ``load`` needs, as copies."""
        return {
            "scores": self._scores.copy(),
            "sorted": self._sorted.copy(),
            "n_fresh": self._n_fresh,
            "high_share": self._high_share,
            "drift": self.drift,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` returned."""
        self._scores = np.array(state["sorted"], dtype=np.float64)
        self._renew(float(state["high_share"]))
        self._scores = np.array(state["scores"], dtype=np.float64)
        self._n_fresh, self.drift = int(state["n_fresh"]), float(state["drift"])

    def _renew(self, high_share: float = _DRIFT_LEVEL) -> None:
        self._high_share, self._n_fresh = high_share, 0
        self._sorted = np.sort(self._scores)
        self._tail = None
        self._fence = float(np.inf)
        n = len(self._sorted)
        if n >= LEAST_SCORES:
            middle, high = np.quantile(self._sorted, [0.5, 0.9])
            self._fence = float(middle + 5.0 * (high - middle))
            self._n_tail = int(np.clip(_TAIL_SHARE * n, _TAIL_LEAST, _TAIL_MOST))
            start = float(self._sorted[-self._n_tail - 1])
            self._tail = fit_tail(self._sorted[-self._n_tail :], start)

    def _raw_p_values(self, scores: FloatArray) -> FloatArray:
        n, highest = len(self._sorted), self._sorted[-1]
        n_below = np.searchsorted(self._sorted, scores, side="left").astype(np.float64)
        conformal = (1.0 + n - n_below) / (n + 1.0)
        if self._tail is None or not len(scores) or scores.max() <= highest:
            return conformal
        beyond = self._tail.survival(scores)
        anchored = beyond / max(float(self._tail.survival(np.array([highest]))[0]), 1e-300) / (n + 1.0)
        fitted = beyond * (self._n_tail + 1.0) / (n + 1.0)
        tail = np.clip(np.maximum(anchored, fitted), 1e-300, 1.0 / (n + 1.0))
        return np.where(scores > highest, tail, conformal)
