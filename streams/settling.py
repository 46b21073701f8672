"""When a job has settled: its first steps are slow, and teach nothing of what is usual."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

#: the first steps are slow (caches, compilation): a job has settled once two runs of this many active windows agree
SETTLING_WINDOWS = 5
SETTLED_RATIO = 1.15
#: a job whose steps never agree has settled after this many active windows
MAX_SETTLING_WINDOWS = 120


class Settling:
    """Follows the length of a job's steps until they agree; ``windows`` counts from then on, 0 before."""

    def __init__(self) -> None:
        self.windows = 0
        self._active_windows = 0
        self._steps: deque[float] = deque(maxlen=2 * SETTLING_WINDOWS)

    def observe(self, step_seconds: float | None) -> None:
        """Add an active window with its median step (seconds), None where the job tells no steps."""
        if self.windows:
            self.windows += 1
            return
        self._active_windows += 1
        if step_seconds is not None:
            self._steps.append(step_seconds)
        if self._agreed(step_seconds is not None):
            self.windows = 1

    def typical_seconds(self) -> float | None:
        """Return the median of the first steps, None before there was one."""
        return float(np.median(self._steps)) if self._steps else None

    def _agreed(self, told: bool) -> bool:
        if not told:
            return self._active_windows >= 2 * SETTLING_WINDOWS
        if len(self._steps) < 2 * SETTLING_WINDOWS:
            return False
        steps = np.array(self._steps)
        earlier, later = np.median(steps[:SETTLING_WINDOWS]), np.median(steps[SETTLING_WINDOWS:])
        agree = max(earlier, later) <= SETTLED_RATIO * min(earlier, later)
        return bool(agree) or self._active_windows >= MAX_SETTLING_WINDOWS

    def state(self) -> dict[str, Any]:
        """Return everything that ``load`` needs."""
        return {"windows": self.windows, "active_windows": self._active_windows, "steps": list(self._steps)}

    def load(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        self.windows, self._active_windows = int(state["windows"]), int(state["active_windows"])
        self._steps = deque(state["steps"], maxlen=2 * SETTLING_WINDOWS)
