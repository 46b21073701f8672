"""Effects: how much each rank differs from what is usual, smoothed over the last windows, in units people know."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from eacgm.events import FloatArray, IntArray
from eacgm.streams.baseline import DRIFT_WINDOWS, Baseline, Rows, group_medians, middle


class Effects:
    """The last active windows of a job against its baseline; all arrays are of shape ``(n_ranks,)``.

    A name that no rank tells gives None, so that a rule can ask for what may not be there.
    """

    def __init__(
        self,
        recent: list[FloatArray],
        baseline: Baseline,
        rows: Rows,
        groups: list[IntArray],
        window_seconds: float,
    ) -> None:
        """Take the last windows, arrays of shape ``(n_ranks, n_features)`` on the catalogue's scale.

        Nothing is worked out before a rule asks: in health none does.
        """
        self._recent, self._baseline, self._rows, self._groups = recent, baseline, rows, groups
        self._column = {name: index for index, name in enumerate(baseline.features)}
        self.window_seconds = window_seconds
        self.n_ranks = recent[0].shape[0]

    @cached_property
    def _smooth(self) -> FloatArray:
        return middle(np.stack(self._recent), axis=0)

    @cached_property
    def _centre(self) -> FloatArray:
        return group_medians(self._smooth, self._groups)

    @cached_property
    def _habit(self) -> FloatArray:
        return self._baseline.rank_mean[self._rows]

    @cached_property
    def _spread(self) -> FloatArray:
        return self._baseline.rank_spread(self._rows)

    @cached_property
    def _level(self) -> FloatArray:
        return self._baseline.unscale(self._smooth)

    @cached_property
    def _job(self) -> FloatArray:
        return middle(self._smooth)

    @cached_property
    def _expected(self) -> dict[bool, FloatArray]:
        """By whether the rank's habit counts: what is expected."""
        return {
            True: self._baseline.unscale(self._centre + self._habit),
            False: self._baseline.unscale(self._centre),
        }

    @cached_property
    def _z(self) -> dict[bool, FloatArray]:
        """By whether the rank's habit counts: the distance from what is expected, in spreads."""
        off = self._smooth - self._centre
        return {True: (off - self._habit) / self._spread, False: off / self._spread}

    def has(self, name: str) -> bool:
        """Tell whether any rank tells the feature."""
        column = self._column.get(name)
        return column is not None and bool(self._job[column] == self._job[column])

    def level(self, name: str) -> FloatArray | None:
        """Return the smoothed reading in its unit."""
        return self._level[:, self._column[name]] if self.has(name) else None

    def expected(self, name: str, *, habit: bool = True) -> FloatArray | None:
        """Return what the peers' median suggests for each rank, in the feature's unit.

        With ``habit`` the rank's own usual distance from its peers is added.
        """
        return self._expected[habit][:, self._column[name]] if self.has(name) else None

    def excess(self, name: str, *, habit: bool = True) -> FloatArray | None:
        """Return level minus expected, in the feature's unit; NaN where peers cannot tell."""
        level, expected = self.level(name), self.expected(name, habit=habit)
        return None if level is None or expected is None else level - expected

    def z(self, name: str, *, habit: bool = True) -> FloatArray | None:
        """Return the effect in spreads of the rank's own residual."""
        return self._z[habit][:, self._column[name]] if self.has(name) else None

    def drift(self, name: str) -> tuple[FloatArray, FloatArray] | None:
        """Return a faint but lasting effect: its size on the feature's scale and in spreads of such an average."""
        if not self.has(name):
            return None
        column = self._column[name]
        size = self._baseline.drift[self._rows, column] - self._baseline.rank_mean[self._rows, column]
        # an exponential average over w windows has the spread of one window over sqrt(2 w - 1)
        return size, size / self._spread[:, column] * np.sqrt(2.0 * DRIFT_WINDOWS - 1.0)

    def change(self, name: str) -> float | None:
        """Return how the median rank changed against the job's past: a ratio (log scale) or a difference.

        None where the job has no past yet.
        """
        if not self.has(name):
            return None
        column = self._column[name]
        if self._baseline.job_count[column] < 1:
            return None
        moved = float(self._job[column] - self._baseline.job_mean[column])
        return float(np.exp(moved)) if self._is_log(column) else moved

    def change_z(self, name: str) -> float | None:
        """Return the same change in spreads of the job's past."""
        if not self.has(name):
            return None
        column = self._column[name]
        if self._baseline.job_count[column] < 1:
            return None
        moved = float(self._job[column] - self._baseline.job_mean[column])
        return moved / float(self._baseline.job_spread()[column])

    def past(self, name: str) -> float | None:
        """Return the job's usual level of a feature, in its unit; None without a past."""
        column = self._column.get(name)
        if column is None or self._baseline.job_count[column] < 1:
            return None
        return float(self._baseline.unscale(self._baseline.job_mean)[column])

    def _is_log(self, column: int) -> bool:
        return bool(self._baseline.logarithmic[column])

    def steps_per_window(self) -> FloatArray | None:
        """Return how many steps each rank makes in a window."""
        step = self.level("step_seconds")
        return None if step is None else self.window_seconds / step

    def per_step(self, seconds: Any) -> FloatArray | None:
        """Return seconds of a window as seconds of a step."""
        steps = self.steps_per_window()
        return None if seconds is None or steps is None else np.asarray(seconds / steps)
