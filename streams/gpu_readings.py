"""What NVML says of the ranks' GPUs, put into a frame's columns."""

from __future__ import annotations

from operator import attrgetter

import numpy as np

from eacgm.events import FloatArray
from eacgm.streams import scatter
from eacgm.streams.catalogue import CATALOGUE
from eacgm.streams.joined_window import JoinedWindow

_AT = {name: index for index, name in enumerate(CATALOGUE)}

#: (field of ``GpuEvent``, column)
_GAUGES = (
    ("utilization_ratio", "gpu_utilization_ratio"),
    ("memory_activity_ratio", "gpu_memory_activity_ratio"),
    ("memory_used_bytes", "gpu_memory_used_bytes"),
    ("memory_total_bytes", "gpu_memory_total_bytes"),
    ("power_watts", "gpu_power_watts"),
    ("power_limit_watts", "gpu_power_limit_watts"),
    ("temperature_celsius", "gpu_temperature_celsius"),
    ("sm_clock_hertz", "gpu_sm_clock_hertz"),
    ("memory_clock_hertz", "gpu_memory_clock_hertz"),
    ("throttle_reasons", "gpu_throttle_reasons"),
    ("ecc_errors", "gpu_ecc_errors"),
    ("lost_device", "gpu_lost"),
)
_COUNTERS = (
    ("pcie_sent_bytes", "pcie_sent_bytes"),
    ("pcie_received_bytes", "pcie_received_bytes"),
    ("pcie_replays", "pcie_replays"),
    ("nvlink_errors", "nvlink_errors"),
)
_READ = attrgetter(*(name for name, _ in _GAUGES + _COUNTERS))
_GAUGE_COLUMNS = np.array([_AT[name] for _, name in _GAUGES])
_COUNTER_COLUMNS = np.array([_AT[name] for _, name in _COUNTERS])
_N_GAUGES = len(_GAUGES)


def gpu_readings(values: FloatArray, joined: JoinedWindow, window_seconds: float) -> None:
    """Fill the GPU's columns of ``values``, shape ``(n_ranks, n_columns)``; a rank of several GPUs shows the last.

    Gauges are the window's last readings, counters sums scaled to the window; an XID stands in its own window.
    """
    placed = joined.gpus
    if not placed.events:
        return
    n_ranks = values.shape[0]
    told = scatter.readings(_READ, placed.events, _N_GAUGES + len(_COUNTERS))
    values[:, _GAUGE_COLUMNS] = scatter.lasts(placed.rows, told[:, :_N_GAUGES], n_ranks)
    seconds = np.array([max((event.end_ns - event.start_ns) * 1e-9, 0.0) for event in placed.events])
    scale = np.where(seconds > window_seconds, window_seconds / np.maximum(seconds, 1e-9), 1.0)
    values[:, _COUNTER_COLUMNS] = scatter.sums(placed.rows, told[:, _N_GAUGES:] * scale[:, None], n_ranks)
    codes = np.array([float(event.xids[-1]) if event.xids else 0.0 for event in placed.events])
    values[:, _AT["gpu_xid"]] = scatter.sums(placed.rows, codes[:, None], n_ranks)[:, 0]
    repeated = np.bincount(placed.rows, minlength=n_ranks) > 1
    if repeated.any():
        # codes cannot be added up: of several, the largest stands
        values[:, _AT["gpu_xid"]] = scatter.largest(placed.rows, codes[:, None], n_ranks)[:, 0]
