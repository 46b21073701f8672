"""How much work a step is: bytes and launches per step, so that a longer step with more work is no fault."""

from __future__ import annotations

from typing import Any

import numpy as np

from eacgm.events import FrameEvent
from eacgm.streams.baseline import middle

#: per-window amounts that tell the size of a step's work
AMOUNTS = ("cuda_memcpy_bytes", "collective_bytes", "cuda_launches", "net_sent_bytes")
#: windows over which amounts and steps are averaged before one is divided by the other: a window holds few steps
SPAN_WINDOWS = 25.0
#: windows until the usual amount counts, and over how many it is averaged
LEAST_WINDOWS = 30
HORIZON_WINDOWS = 600


class WorkMeter:
    """Follows the median rank's amounts per step, now and usually; arrays of shape ``(len(AMOUNTS),)``."""

    def __init__(self) -> None:
        self.amounts = np.full(len(AMOUNTS), np.nan)
        self.steps = np.nan
        self.usual = np.full(len(AMOUNTS), np.nan)
        self.windows = 0

    def observe(self, frame: FrameEvent, columns: dict[str, int], *, healthy: bool) -> None:
        """Add an active window; only a healthy one teaches what is usual."""
        if "step_seconds" not in columns:
            return
        step = float(middle(frame.values[:, columns["step_seconds"]]))
        steps = (frame.end_ns - frame.start_ns) / 1e9 / step if step > 0 else np.nan
        if "step_count" in columns:
            steps = float(middle(frame.values[:, columns["step_count"]]))
        now = np.array(
            [float(middle(frame.values[:, columns[name]])) if name in columns else np.nan for name in AMOUNTS]
        )
        if np.isnan(steps):
            return
        self.steps = steps if np.isnan(self.steps) else self.steps + (steps - self.steps) / SPAN_WINDOWS
        moved = np.where(np.isnan(self.amounts), now, self.amounts + (now - self.amounts) / SPAN_WINDOWS)
        self.amounts = np.where(np.isnan(now), self.amounts, moved)
        if healthy and self.steps > 0:
            self.windows = min(self.windows + 1, HORIZON_WINDOWS)
            per_step = self.amounts / self.steps
            fresh = np.where(np.isnan(self.usual), per_step, self.usual + (per_step - self.usual) / self.windows)
            self.usual = np.where(np.isnan(per_step), self.usual, fresh)

    def ratios(self) -> dict[str, float]:
        """Return now over usual for every amount that is told; empty while too little was seen."""
        if self.windows < LEAST_WINDOWS or not self.steps > 0:
            return {}
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.amounts / self.steps / self.usual
        return {name: float(r) for name, r in zip(AMOUNTS, ratio, strict=True) if np.isfinite(r)}

    def adopt(self) -> None:
        """Take the present amounts as the usual ones."""
        if self.steps > 0:
            self.usual = self.amounts / self.steps

    def state(self) -> dict[str, Any]:
        """Return everything that ``load`` needs."""
        return {"amounts": self.amounts, "steps": self.steps, "usual": self.usual, "windows": self.windows}

    def load(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        self.amounts, self.usual = np.array(state["amounts"]), np.array(state["usual"])
        self.steps, self.windows = float(state["steps"]), int(state["windows"])
