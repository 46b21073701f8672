"""What the job as a whole is doing: warm-up, train, eval, checkpoint or idle, from what is seen of it.

Careful on purpose: a phase other than ``train`` excuses silence, so it takes positive signs (writes, launches, work)
to leave it; a job that merely stands still is still training, and hangs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eacgm.events import PHASES, FloatArray
from eacgm.streams.catalogue import CATALOGUE

WARMUP, TRAIN, EVAL, CHECKPOINT, IDLE = PHASES

_AT = {name: index for index, name in enumerate(CATALOGUE)}
#: what is written in one second of a checkpoint, at least, and at least so many times the usual
_BURST_BYTES = 8 * 1024 * 1024
_BURST_RATIO = 10.0
#: windows without a step, and multiples of the usual pause between steps, before work is an evaluation
_QUIET_WINDOWS = 2
_QUIET_RATIO = 3.0
#: share of training's launches or CPU time that still is work
_WORK_RATIO = 0.2
_CPU_RATIO = 0.5
#: windows without launches, calls in flight or CPU time before a job is idle
_IDLE_WINDOWS = 30
_IDLE_RATIO = 0.02
#: a job of which no step was ever seen is taken for what it is after this many windows
_STEPLESS_WINDOWS = 30
_SMOOTHING = 0.1

_LEVELS = ("cuda_launches", "cpu_seconds", "written", "pause_windows")


class Phase:
    """Follows one job from window to window."""

    def __init__(self) -> None:
        self._windows = 0
        self._quiet = 0
        self._still = 0
        self._stepped = False
        self._levels: dict[str, float] = {}

    def observe(self, values: FloatArray, told: str) -> str:
        """Return the phase of a window with ``values`` of shape ``(n_ranks, n_columns)``, in the catalogue's columns.

        ``told`` is what the source says, and then wins; empty if it does not say.
        """
        self._windows += 1
        step = bool((values[:, _AT["step_count"]] > 0).any() or (values[:, _AT["step_seconds"]] > 0).any())
        launches = _middle(values[:, _AT["cuda_launches"]])
        cpu = _middle(values[:, _AT["cpu_seconds"]])
        written = values[:, [_AT["io_written_bytes"], _AT["checkpoint_write_bytes"]]]
        most = float(np.nanmax(written)) if not np.isnan(written).all() else np.nan
        in_flight = values[:, [_AT["collective_open_seconds"], _AT["call_open_seconds"]]]
        waiting = bool((in_flight > 1.0).any())
        if step:
            if self._stepped:
                self._learn("pause_windows", self._quiet)
            self._learn("cuda_launches", launches)
            self._learn("cpu_seconds", cpu)
            self._learn("written", most)
            self._stepped, self._quiet, self._still = True, 0, 0
            return told or TRAIN
        self._quiet += 1
        still = not waiting and self._below("cpu_seconds", cpu, _IDLE_RATIO) and not launches > 0
        self._still = self._still + 1 if still else 0
        return told or self._without_step(launches, cpu, most, waiting)

    def _without_step(self, launches: float, cpu: float, written: float, waiting: bool) -> str:
        if not self._stepped:
            return WARMUP if self._windows <= _STEPLESS_WINDOWS else TRAIN
        if written > max(_BURST_BYTES, _BURST_RATIO * self._levels.get("written", 0.0)):
            return CHECKPOINT
        if self._quiet > max(_QUIET_WINDOWS, _QUIET_RATIO * self._levels.get("pause_windows", 0.0)) and not waiting:
            usual = self._levels.get("cuda_launches", 0.0)
            if usual > 0 and launches > _WORK_RATIO * usual:
                return EVAL
            if not usual > 0 and cpu > _CPU_RATIO * self._levels.get("cpu_seconds", np.inf):
                return EVAL
        return IDLE if self._still >= _IDLE_WINDOWS else TRAIN

    def _below(self, name: str, value: float, ratio: float) -> bool:
        return name in self._levels and value < ratio * self._levels[name]

    def _learn(self, name: str, value: float) -> None:
        if value == value:
            before = self._levels.get(name, value)
            self._levels[name] = before + _SMOOTHING * (value - before)

    def state(self) -> dict[str, Any]:
        """Return everything that the future depends on."""
        return {
            "windows": self._windows,
            "quiet": self._quiet,
            "still": self._still,
            "stepped": self._stepped,
            "levels": {name: self._levels[name] for name in _LEVELS if name in self._levels},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        self._windows, self._quiet, self._still = state["windows"], state["quiet"], state["still"]
        self._stepped, self._levels = state["stepped"], dict(state["levels"])


def _middle(column: FloatArray) -> float:
    told = column[~np.isnan(column)]
    return float(np.sort(told)[told.size // 2]) if told.size else np.nan
