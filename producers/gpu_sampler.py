"""Rounds of GPU readings in a thread of their own: a driver that answers slowly, or never, holds nobody up.

A round begins in the middle of each interval, so that it is there at the interval's end. What it cannot ask for in
time is left out; a call that hangs cannot be ended, but only this thread waits for it. Rounds that cost much CPU time
come less often.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from eacgm.errors import EacgmError
from eacgm.events import LayerCoverage
from eacgm.producers.gpu_reading import GpuReading

LAYER = "gpu"
#: a missing driver is looked for again after so long
RETRY_NS = 10_000_000_000
#: a round begins at this share of the interval, and may last that share of it
_PHASE, _LENGTH = 0.5, 0.45
#: of one core, on average: a dearer round is followed by a longer pause
_CPU_SHARE = 0.05
#: intervals that a round may be late before it is said that it does not answer
_PATIENCE_INTERVALS = 3
_STOP_SECONDS = 1.0
#: XIDs that wait to be taken; more are counted
_MAX_WAITING = 4096


@dataclass(slots=True)
class Taken:
    """What has come since the last time: ``readings`` None if no round has ended; XIDs as (board, code)."""

    readings: list[GpuReading] | None
    coverage: LayerCoverage
    xids: list[tuple[str, int]] = field(default_factory=list)
    lost_xids: int = 0


class GpuSampler:
    """Reads every GPU once an interval from its making until ``stop``; a missing driver is looked for again."""

    def __init__(self, interval_ns: int, *, retry_ns: int = RETRY_NS) -> None:
        self._interval_ns = interval_ns
        self._retry_ns = retry_ns
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._readings: list[GpuReading] | None = None
        self._xids: list[tuple[str, int]] = []
        self._lost_xids = 0
        self._due_ns = time.monotonic_ns()
        self._short = False
        self._met = False
        self._failure: str | None = None
        self._n_gpus = 0
        self._thread = threading.Thread(target=self._run, name="gpus", daemon=True)
        self._thread.start()

    def take(self) -> Taken:
        """Return what has come since the last time; never waits for the driver."""
        with self._lock:
            taken = Taken(self._readings, self._coverage(), self._xids, self._lost_xids)
            self._readings, self._xids, self._lost_xids = None, [], 0
        return taken

    def stop(self) -> None:
        """End the rounds; a call that hangs is left to itself."""
        self._stop.set()
        self._thread.join(_STOP_SECONDS)

    def _coverage(self) -> LayerCoverage:
        if self._failure is not None:
            return LayerCoverage(layer=LAYER, status="failed" if self._met else "absent", reason=self._failure)
        if time.monotonic_ns() - self._due_ns > _PATIENCE_INTERVALS * self._interval_ns:
            return LayerCoverage(layer=LAYER, status="failed", reason="NVML does not answer")
        if self._short:
            reason = "NVML answers too slowly: some readings are left out"
            return LayerCoverage(layer=LAYER, status="partial", reason=reason, probes=self._n_gpus)
        return LayerCoverage(layer=LAYER, status="attached", probes=self._n_gpus)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._serve()
            except EacgmError as error:
                self._fail(str(error))
            except Exception as error:  # noqa: BLE001 - whatever the library does: it is told, and the agent goes on
                self._fail(f"NVML: {type(error).__name__}: {error}".splitlines()[0])
            self._stop.wait(self._retry_ns / 1e9)

    def _fail(self, reason: str) -> None:
        with self._lock:
            self._failure = reason
            self._readings = None

    def _serve(self) -> None:
        """Open the library and read until the driver goes or we are stopped."""
        from eacgm.producers.nvml import Nvml

        nvml = Nvml()
        try:
            while True:
                begun = time.thread_time()
                budget_ns = round(self._interval_ns * _LENGTH)
                readings = nvml.read(time.monotonic_ns() + budget_ns)
                xids = nvml.take_xids()
                with self._lock:
                    self._failure, self._met = None, True
                    self._readings, self._n_gpus = readings, len(readings)
                    self._short = nvml.left_out > 0
                    room = _MAX_WAITING - len(self._xids)
                    self._xids += xids[:room]
                    self._lost_xids += max(0, len(xids) - room)
                pause = pause_seconds(time.time_ns(), self._interval_ns, time.thread_time() - begun)
                with self._lock:
                    self._due_ns = time.monotonic_ns() + round(pause * 1e9)
                if self._stop.wait(pause):
                    return
        finally:
            nvml.close()


def pause_seconds(now_ns: int, interval_ns: int, spent_seconds: float) -> float:
    """Return how long to wait for the middle of the next interval, or of a later one if the round cost much CPU time.

    >>> [pause_seconds(2_700_000_000, 1_000_000_000, spent) for spent in (0.01, 0.1)]
    [0.8, 2.8]
    """
    phase = (now_ns - round(interval_ns * _PHASE)) % interval_ns
    least = int(spent_seconds / _CPU_SHARE * 1e9)
    intervals = max(1, -(-(phase + least) // interval_ns))
    return (intervals * interval_ns - phase) / 1e9
