"""When a job has settled: its first steps are slow, and teach nothing of what is usual."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

#: the first steps are slow (caches, compilation): a job has settled once two runs of this many active windows agree
SETTLING_WINDOWS = 5
SETTLED_RATIO = 1.15
#: of steps longer than a window at least so many must agree with as many before them
LEAST_STEPS = 2
#: a job whose steps never agree has settled after this many active windows
MAX_SETTLING_WINDOWS = 120


class Settling:
    """Follows the length of a job's steps until they agree; ``windows`` counts from then on, 0 before."""

    def __init__(self) -> None:
        self.windows = 0
        self._active_windows = 0
        self._steps: deque[float] = deque(maxlen=2 * SETTLING_WINDOWS)

    def observe(self, step_seconds: float | None, window_seconds: float) -> None:
        """Add an active window with its median step (seconds), None where the job tells no steps."""
        if self.windows:
            self.windows += 1
            return
        self._active_windows += 1
        if step_seconds is not None:
            self._steps.append(step_seconds)
        if self._agreed(step_seconds is not None, window_seconds):
            self.windows = 1

    def typical_seconds(self) -> float | None:
        """Return the median of the first steps, None before there was one."""
        return float(np.median(self._steps)) if self._steps else None

    def _agreed(self, told: bool, window_seconds: float) -> bool:
        if not told:
            return self._active_windows >= 2 * SETTLING_WINDOWS
        if self._active_windows >= MAX_SETTLING_WINDOWS:
            return True
        steps = np.array(self._steps)
        if len(steps) < 2 * LEAST_STEPS:
            return False
        # a step of several windows says as much as they would, and ten of them would take long to wait for
        windows_of_a_step = max(float(np.median(steps[-LEAST_STEPS:])) / window_seconds, 1.0)
        n_steps = max(round(SETTLING_WINDOWS / windows_of_a_step), LEAST_STEPS)
        if len(steps) < 2 * n_steps:
            return False
        earlier, later = np.median(steps[-2 * n_steps : -n_steps]), np.median(steps[-n_steps:])
        return bool(max(earlier, later) <= SETTLED_RATIO * min(earlier, later))

    def state(self) -> dict[str, Any]:
        """Return everything that ``load`` needs."""
        return {"windows": self.windows, "active_windows": self._active_windows, "steps": list(self._steps)}

    def load(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        self.windows, self._active_windows = int(state["windows"]), int(state["active_windows"])
        self._steps = deque(state["steps"], maxlen=2 * SETTLING_WINDOWS)
