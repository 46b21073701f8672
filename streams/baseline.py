"""What is usual: each rank beside its peers, and the job beside its own past, feature by feature.

Readings are put on the scale of the catalogue (logarithm of durations and rates), so that an effect is a ratio
where ratios matter. Two questions are asked of every reading:

- peers: how far is the rank from the median of the ranks that do the same work, and is that its habit?
- past: how far is the median rank from where it used to be?
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import bottleneck
import numpy as np

from eacgm.events import FloatArray, IntArray
from eacgm.streams.catalogue import feature

#: places of ranks in the baseline's arrays
Rows = IntArray | slice
#: two ranks cannot vote
MIN_VOTERS = 3
#: smallest spread that counts, on the log scale (2 %)
LOG_SPREAD_FLOOR = 0.02
#: how many earlier windows a spread of a young baseline borrows from the pooled one
BORROWED_WINDOWS = 20.0
#: a baseline of fewer windows learns whatever comes; an older one at most this many spreads at a time
YOUNG_WINDOWS = 10
#: windows over which an effect is the median, and over which a faint, lasting one is averaged
SMOOTHED_WINDOWS = 5
DRIFT_WINDOWS = 25.0
LIMIT_SPREADS = 4.0


def middle(values: FloatArray, axis: int = 0) -> FloatArray:
    """Return the median along ``axis``, NaN left out; NaN where nothing is told.

    >>> middle(np.array([[1.0, np.nan], [3.0, 5.0], [2.0, np.nan]]))
    array([2., 5.])
    """
    return np.asarray(bottleneck.nanmedian(values, axis=axis), dtype=np.float64)


def group_medians(scaled: FloatArray, groups: Sequence[IntArray]) -> FloatArray:
    """Return for each rank and feature the median of the rank's group, NaN where fewer than three of it told.

    ``scaled`` is of shape ``(n_ranks, n_features)``, ``groups`` the positions of each group's members.
    """
    if len(groups) == 1:
        return np.broadcast_to(_vote(scaled), scaled.shape)
    centre = np.full(scaled.shape, np.nan)
    for members in groups:
        centre[members] = _vote(scaled[members])
    return centre


def _vote(block: FloatArray) -> FloatArray:
    voters = len(block) - np.isnan(block).sum(axis=0)
    return np.where(voters >= MIN_VOTERS, middle(block), np.nan)


def _tamed(delta: FloatArray, spread: FloatArray, count: FloatArray) -> FloatArray:
    """Limit what one window may teach: a lone spike must not widen the spread for minutes."""
    limit = np.where(count >= YOUNG_WINDOWS, LIMIT_SPREADS * spread, np.inf)
    return np.clip(delta, -limit, limit)


@dataclass(slots=True)
class Residuals:
    """One frame against what is usual; arrays of shape ``(n_ranks, n_features)`` or ``(n_features,)``.

    ``scaled`` are the readings on the catalogue's scale; ``peer`` the distance from the median of the group, NaN
    where fewer than three ranks told; ``peer_z`` that distance against the rank's habit, in its spreads; ``job`` the
    median over ranks and the last windows and ``job_z`` its distance from the job's past, in spreads; ``spread`` is
    what ``peer_z`` was divided by.
    """

    scaled: FloatArray
    peer: FloatArray
    peer_z: FloatArray
    job: FloatArray
    job_z: FloatArray
    spread: FloatArray


class Baseline:
    """Habits of every rank beside its peers and of the job as a whole.

    A running mean and variance over at most ``horizon`` windows each; the caller says which windows are healthy
    enough to learn from.
    """

    def __init__(self, horizon: int = 600) -> None:
        self.horizon = horizon
        self.features: list[str] = []
        self.ranks: list[int] = []
        self.rank_mean = np.empty((0, 0))
        self.rank_variance = np.empty((0, 0))
        self.rank_count = np.empty((0, 0))
        self.drift = np.empty((0, 0))
        self.recent_jobs: deque[FloatArray] = deque(maxlen=SMOOTHED_WINDOWS)
        self.job_mean = np.empty(0)
        self.job_variance = np.empty(0)
        self.job_count = np.empty(0)
        self._prepare()

    def _prepare(self) -> None:
        entries = [feature(name) for name in self.features]
        self.scored = [index for index, entry in enumerate(entries) if entry.scored]
        self.scored_names = [self.features[index] for index in self.scored]
        self.logarithmic = np.array([entry.scale == "log" for entry in entries], dtype=bool)
        self._floor = np.array([entry.floor for entry in entries], dtype=np.float64)
        spread = np.where(self.logarithmic, LOG_SPREAD_FLOOR, self._floor)
        self._variance_floor = spread**2

    def align(self, ranks: Sequence[int], features: Sequence[str]) -> Rows:
        """Make room for new ranks and new columns; return the rows of ``ranks``, a slice if that is all of them.

        Columns of the frame must be those known so far in the same order, new ones anywhere: known columns move
        with their name.
        """
        if list(features) != self.features:
            self._adopt_features(list(features))
        if list(ranks) == self.ranks:
            return slice(None)
        row_of = {rank: row for row, rank in enumerate(self.ranks)}
        fresh = [rank for rank in ranks if rank not in row_of]
        if fresh:
            n_new, n_features = len(fresh), len(self.features)
            self.rank_mean = np.vstack([self.rank_mean, np.zeros((n_new, n_features))])
            self.rank_variance = np.vstack([self.rank_variance, np.zeros((n_new, n_features))])
            self.rank_count = np.vstack([self.rank_count, np.zeros((n_new, n_features))])
            self.drift = np.vstack([self.drift, np.zeros((n_new, n_features))])
            for rank in fresh:
                row_of[rank] = len(self.ranks)
                self.ranks.append(rank)
        return np.array([row_of[rank] for rank in ranks], dtype=np.int64)

    def _adopt_features(self, features: list[str]) -> None:
        old = {name: column for column, name in enumerate(self.features)}
        source = np.array([old.get(name, -1) for name in features], dtype=np.int64)
        known = source >= 0

        def moved(array: FloatArray) -> FloatArray:
            shape = (*array.shape[:-1], len(features))
            out = np.zeros(shape)
            out[..., known] = array[..., source[known]]
            return out

        self.rank_mean, self.rank_variance = moved(self.rank_mean), moved(self.rank_variance)
        self.rank_count, self.drift = moved(self.rank_count), moved(self.drift)
        self.recent_jobs.clear()
        self.job_mean, self.job_variance = moved(self.job_mean), moved(self.job_variance)
        self.job_count = moved(self.job_count)
        self.features = features
        self._prepare()

    def scale(self, values: FloatArray) -> FloatArray:
        """Return readings of shape ``(..., n_features)`` on the catalogue's scale; below the floor is at the floor."""
        scaled = np.maximum(values, self._floor, where=self.logarithmic, out=values.astype(np.float64, copy=True))
        np.log(scaled, out=scaled, where=self.logarithmic)
        return scaled

    def unscale(self, scaled: FloatArray) -> FloatArray:
        """Return values of shape ``(..., n_features)`` back in their units."""
        return np.exp(scaled, where=self.logarithmic, out=scaled.copy())

    def observe(self, rows: Rows, values: FloatArray, groups: Sequence[IntArray]) -> Residuals:
        """Compare a frame's ``values`` of shape ``(n_ranks, n_features)`` with what is usual; learns nothing.

        ``rows`` are the ranks' rows as ``align`` gave them, ``groups`` the positions of each group's members.
        """
        scaled = self.scale(values)
        peer = scaled - group_medians(scaled, groups)
        mean, count = self.rank_mean[rows], self.rank_count[rows]
        spread = self.rank_spread(rows)
        peer_z = np.where(count > 0, peer - mean, peer) / spread
        self._track_drift(rows, peer)
        job = self._smoothed(middle(scaled))
        job_z = np.where(self.job_count > 0, job - self.job_mean, 0.0) / self.job_spread()
        return Residuals(scaled, peer, peer_z, job, job_z, spread)

    def _smoothed(self, job: FloatArray) -> FloatArray:
        """Return the median of the job's last windows: one slow step is nobody's news."""
        self.recent_jobs.append(job)
        return middle(np.stack(self.recent_jobs))

    def _track_drift(self, rows: Rows, peer: FloatArray) -> None:
        recent = self.drift[rows]
        self.drift[rows] = np.where(np.isnan(peer), recent, recent + (peer - recent) / DRIFT_WINDOWS)

    def rank_spread(self, rows: Rows) -> FloatArray:
        """Return each rank's spread about its habit, ``(n_ranks, n_features)``; a young one leans on all ranks'."""
        count, variance = self.rank_count[rows], self.rank_variance[rows]
        total = count.sum(axis=0)
        pooled = (count * variance).sum(axis=0) / np.maximum(total, 1.0)
        blended = (count * variance + BORROWED_WINDOWS * pooled) / (count + BORROWED_WINDOWS)
        return np.asarray(np.sqrt(blended + self._variance_floor))

    def job_spread(self) -> FloatArray:
        """Return the spread of the median rank about the job's past, ``(n_features,)``."""
        return np.asarray(np.sqrt(self.job_variance + self._variance_floor))

    def learn(self, rows: Rows, residuals: Residuals, healthy: FloatArray, job_healthy: bool) -> None:
        """Learn from a frame: ``healthy`` of shape ``(n_ranks,)`` is 1 for ranks to learn from and 0 for others."""
        weight = ~np.isnan(residuals.peer) & (healthy > 0)[:, None]
        self._update_ranks(rows, residuals, weight)
        if job_healthy:
            told = ~np.isnan(residuals.job)
            count = np.minimum(self.job_count + told, self.horizon)
            rate = np.where(told, 1.0 / np.maximum(count, 1.0), 0.0)
            delta = np.where(told, residuals.job - self.job_mean, 0.0)
            delta = _tamed(delta, self.job_spread(), self.job_count)
            self.job_mean = self.job_mean + rate * delta
            self.job_variance = self.job_variance + rate * ((1.0 - rate) * delta * delta - self.job_variance) * (
                count > 1
            )
            self.job_count = count

    def _update_ranks(self, rows: Rows, residuals: Residuals, weight: Any) -> None:
        mean, variance = self.rank_mean[rows], self.rank_variance[rows]
        count = np.minimum(self.rank_count[rows] + weight, self.horizon)
        rate = np.where(weight, 1.0 / np.maximum(count, 1.0), 0.0)
        delta = _tamed(np.where(weight, residuals.peer - mean, 0.0), residuals.spread, self.rank_count[rows])
        self.rank_mean[rows] = mean + rate * delta
        self.rank_variance[rows] = variance + rate * ((1.0 - rate) * delta * delta - variance) * (count > 1)
        self.rank_count[rows] = count

    def adopt_job(self, job: FloatArray) -> None:
        """Take ``job`` of shape ``(n_features,)`` as the new usual: the work itself has changed."""
        told = ~np.isnan(job)
        self.job_mean = np.where(told, job, self.job_mean)
        self.job_count = np.where(told, np.minimum(self.job_count, 20.0), self.job_count)

    def state(self) -> dict[str, Any]:
        """Return everything that ``load`` needs."""
        return {
            "features": list(self.features),
            "ranks": list(self.ranks),
            "rank_mean": self.rank_mean,
            "rank_variance": self.rank_variance,
            "rank_count": self.rank_count,
            "drift": self.drift,
            "recent_jobs": list(self.recent_jobs),
            "job_mean": self.job_mean,
            "job_variance": self.job_variance,
            "job_count": self.job_count,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        self.features = list(state["features"])
        self.ranks = [int(rank) for rank in state["ranks"]]
        self.recent_jobs = deque((np.array(job) for job in state["recent_jobs"]), maxlen=SMOOTHED_WINDOWS)
        for name in ("rank_mean", "rank_variance", "rank_count", "drift", "job_mean", "job_variance", "job_count"):
            setattr(self, name, np.array(state[name], dtype=np.float64))
        self._prepare()
