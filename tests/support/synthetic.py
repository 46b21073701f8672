"""Frames of a small synchronous job, for tests of the rooms behind the frames: numbers, no events."""

from collections.abc import Callable, Iterator

import numpy as np

from eacgm.config import Config
from eacgm.events import AlertEvent, FrameEvent
from eacgm.streams.alert import Incidents
from eacgm.streams.detect import Detector
from eacgm.streams.detection import Detection
from eacgm.streams.diagnose import diagnose

FEATURES = [
    "step_seconds", "compute_seconds", "data_wait_seconds", "gc_seconds", "collective_seconds", "collective_count",
    "collective_seq", "cuda_launches", "cuda_memcpy_seconds", "cuda_memcpy_bytes", "gpu_utilization_ratio",
    "gpu_power_watts", "gpu_sm_clock_hertz", "gpu_memory_used_bytes", "gpu_ecc_errors", "gpu_xid", "net_retransmits",
    "net_rtt_seconds", "cpu_seconds", "run_queue_wait_seconds", "throttled_seconds", "io_wait_seconds",
    "io_written_bytes", "stopped_ratio", "exited", "exit_code",
]  # fmt: skip
COLUMN = {name: index for index, name in enumerate(FEATURES)}

Change = Callable[[int, np.ndarray], None]


class SyntheticJob:
    """A job of ``n_ranks`` ranks with half-second steps; ``change(second, values)`` edits each window's values.

    The change sees ``own`` work (compute, data, copies) before the waiting is worked out, so that peers wait for it.
    """

    def __init__(self, n_ranks: int = 8, seed: int = 1) -> None:
        self.n_ranks, self.random = n_ranks, np.random.default_rng(seed)
        self.habit = self.random.normal(1.0, 0.015, n_ranks)
        self.sequence = 0

    def frames(self, seconds: int, change: Change | None = None) -> Iterator[FrameEvent]:
        for second in range(seconds):
            values = self._healthy()
            if change is not None:
                change(second, values)
            self._wait_for_peers(values)
            present = ~np.isnan(values).all(axis=1)
            yield FrameEvent(
                job="job",
                start_ns=second * 10**9,
                end_ns=(second + 1) * 10**9,
                ranks=np.arange(self.n_ranks),
                present=present.tolist(),
                nodes=[f"node{rank // 4}" for rank in range(self.n_ranks)],
                groups=[""] * self.n_ranks,
                features=FEATURES,
                values=values,
            )

    def _healthy(self) -> np.ndarray:
        def noisy(level: float, spread: float) -> np.ndarray:
            return level * np.exp(self.random.normal(0.0, spread, self.n_ranks))

        told = {
            "step_seconds": np.zeros(self.n_ranks),
            "compute_seconds": self.habit * noisy(0.40, 0.01),
            "data_wait_seconds": noisy(0.004, 0.3),
            "gc_seconds": noisy(0.002, 0.5),
            "collective_seconds": noisy(0.05, 0.05),
            "collective_count": np.full(self.n_ranks, 8.0),
            "cuda_launches": noisy(2000, 0.02),
            "cuda_memcpy_seconds": noisy(0.04, 0.05),
            "cuda_memcpy_bytes": np.full(self.n_ranks, 2e9),
            "gpu_utilization_ratio": np.full(self.n_ranks, 0.96),
            "gpu_power_watts": noisy(400, 0.03),
            "gpu_sm_clock_hertz": np.full(self.n_ranks, 1.7e9),
            "gpu_memory_used_bytes": np.full(self.n_ranks, 4e10),
            "net_rtt_seconds": noisy(2e-4, 0.1),
            "cpu_seconds": noisy(2.5, 0.05),
            "run_queue_wait_seconds": noisy(0.02, 0.3),
            "io_wait_seconds": noisy(0.001, 0.5),
            "io_written_bytes": noisy(2000, 0.5),
        }
        values = np.zeros((self.n_ranks, len(FEATURES)))
        for name, column in told.items():
            values[:, COLUMN[name]] = column
        return values

    def _wait_for_peers(self, values: np.ndarray) -> None:
        at = COLUMN.__getitem__
        if not np.isnan(values[:, at("step_seconds")]).all():
            own = values[:, at("compute_seconds")] + values[:, at("data_wait_seconds")]
            own = own + 0.5 * values[:, at("cuda_memcpy_seconds")] + 0.5 * values[:, at("gc_seconds")]
            wait = np.nanmax(own) - own
            values[:, at("collective_seconds")] += wait
            told = ~np.isnan(values[:, at("step_seconds")])
            step = np.nanmax(own) + 0.05
            values[told, at("step_seconds")] = step
            # a step's copies and launches are the same, so a longer step makes fewer in a window
            values[:, at("cuda_memcpy_bytes")] *= 0.5 / step
            values[:, at("cuda_launches")] *= 0.5 / step
            self.sequence += 8
        dead = np.isnan(values).all(axis=1)
        values[~dead, at("collective_seq")] = self.sequence


def silence(values: np.ndarray) -> None:
    """Take the steps out of a window: nobody moves, nothing is launched."""
    for name in ("step_seconds", "compute_seconds", "data_wait_seconds", "gc_seconds", "collective_seconds",
                 "cuda_memcpy_seconds"):  # fmt: skip
        values[:, COLUMN[name]] = np.nan
    for name in ("collective_count", "cuda_launches", "cuda_memcpy_bytes"):
        values[:, COLUMN[name]] = 0.0
    values[:, COLUMN["cpu_seconds"]] = 1.0


def watch(
    frames: Iterator[FrameEvent], config: Config | None = None
) -> tuple[list[AlertEvent], Detection | None, Detector]:
    """Return the alerts of a run of frames, the last detection and the detector."""
    config = config or Config()
    detector, incidents = Detector(config), Incidents(config.alert)
    alerts: list[AlertEvent] = []
    detection = None
    for frame in frames:
        detection = detector.observe(frame)
        alerts += incidents.update(frame, diagnose(detection, detector), active=detection.active or detection.over)
        detector.note(incidents.accused())
    return alerts, detection, detector


def opened(alerts: list[AlertEvent]) -> list[tuple[str, list[int]]]:
    """Return (cause, ranks) of every incident, as last told, in the order of opening."""
    last: dict[str, AlertEvent] = {}
    for alert in alerts:
        last[alert.incident] = alert
    return [(alert.cause, alert.ranks.tolist()) for alert in last.values()]
