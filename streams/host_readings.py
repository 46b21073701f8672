"""What the kernel says of processes and their nodes, put into a frame's columns."""

from __future__ import annotations

from operator import attrgetter

import numpy as np

from eacgm.events import FloatArray, HostEvent
from eacgm.streams import scatter
from eacgm.streams.catalogue import CATALOGUE
from eacgm.streams.joined_window import JoinedWindow
from eacgm.streams.placed import Placed

_AT = {name: index for index, name in enumerate(CATALOGUE)}

_HOST_COUNTERS = (
    "cpu_seconds",
    "run_queue_wait_seconds",
    "throttled_seconds",
    "io_wait_seconds",
    "major_faults",
    "io_read_bytes",
    "io_written_bytes",
    "net_sent_bytes",
    "net_received_bytes",
    "net_retransmits",
)
_HOST_GAUGES = ("rss_bytes", "net_rtt_seconds")
_HOST_SUMS = (*_HOST_COUNTERS, "oom_kills")
_STEP_THREAD = ("step_thread_blocked_seconds", "step_thread_cpu_seconds", "step_thread_run_queue_wait_seconds")
_HOST = attrgetter(*_HOST_SUMS, *_STEP_THREAD, *_HOST_GAUGES, "stopped", "stopped_seconds", "start_ns", "end_ns")
_N_SUMS = len(_HOST_SUMS) + len(_STEP_THREAD)
_N_FIELDS = _N_SUMS + len(_HOST_GAUGES) + 4
_WORKER = attrgetter("cpu_seconds", "io_wait_seconds")
_NODE = attrgetter("net_retransmits", "oom_kills", "net_rtt_seconds")

_COUNTER_COLUMNS = np.array([_AT[name] for name in _HOST_COUNTERS])
_GAUGE_COLUMNS = np.array([_AT[name] for name in _HOST_GAUGES])


def host_readings(values: FloatArray, joined: JoinedWindow, window_seconds: float) -> FloatArray:
    """Fill what the kernel tells of processes into ``values``, shape ``(n_ranks, n_columns)``.

    Returns the step thread's seconds and what they cover, of shape ``(n_ranks, 4)``: blocked, on or waiting for a CPU,
    covered (s), scale to the window. Counters are scaled to ``window_seconds``.
    """
    n_ranks = joined.ranks.size
    placed = joined.hosts
    if not placed.events:
        return np.full((n_ranks, 4), np.nan)
    told = scatter.readings(_HOST, placed.events, _N_FIELDS)
    seconds = (told[:, -1:] - told[:, -2:-1]) * 1e-9
    total = scatter.sums(placed.rows, np.concatenate((told[:, :_N_SUMS], seconds), axis=1), n_ranks)
    scale = scatter.to_window(total[:, -1], window_seconds)
    values[:, _COUNTER_COLUMNS] = total[:, : len(_HOST_COUNTERS)] * scale[:, None]
    values[:, _AT["oom_kills"]] = total[:, len(_HOST_COUNTERS)]
    values[:, _GAUGE_COLUMNS] = scatter.lasts(placed.rows, told[:, _N_SUMS : _N_SUMS + 2], n_ranks)
    # a reading of seconds says more than one look at the state
    stopped = np.where(np.isnan(told[:, -3:-2]), told[:, -4:-3] * seconds, told[:, -3:-2])
    with np.errstate(divide="ignore", invalid="ignore"):
        values[:, _AT["stopped_ratio"]] = np.minimum(
            scatter.sums(placed.rows, stopped, n_ranks)[:, 0] / total[:, -1], 1.0
        )
    _worker_readings(values, joined.workers, window_seconds)
    blocked, cpu, runnable = total[:, _N_SUMS - 3], total[:, _N_SUMS - 2], total[:, _N_SUMS - 1]
    return np.stack((blocked, cpu + runnable, total[:, -1], scale), axis=1)


def _worker_readings(values: FloatArray, placed: Placed[HostEvent], window_seconds: float) -> None:
    if not placed.events:
        return
    told = scatter.readings(_WORKER, placed.events, 2)
    told *= scatter.to_window(placed.seconds(), window_seconds)[:, None]
    values[:, [_AT["worker_cpu_seconds"], _AT["worker_io_wait_seconds"]]] = scatter.sums(
        placed.rows, told, values.shape[0]
    )


def node_readings(values: FloatArray, joined: JoinedWindow) -> None:
    """Fill what nodes tell into ``values``, shape ``(n_ranks, n_columns)``, where their processes do not tell it."""
    placed = joined.node_hosts
    if not placed.events:
        return
    n_ranks = joined.ranks.size
    told = scatter.readings(_NODE, placed.events, 3)
    total = scatter.sums(placed.rows, told, n_ranks)
    present = joined.present
    for at, name in ((0, "net_retransmits"), (1, "oom_kills"), (2, "net_rtt_seconds")):
        # what is told of the process itself says more than what is told of its node
        own = values[:, _AT[name]]
        values[:, _AT[name]] = np.where(np.isnan(own) & present, total[:, at], own)
    codes = np.array([float(event.xids[-1]) if event.xids else np.nan for event in placed.events])
    xid = scatter.lasts(placed.rows, codes[:, None], n_ranks)[:, 0]
    own = values[:, _AT["gpu_xid"]]
    # a GPU that tells its own XID says more than its node's kernel log, which does not say whose it is
    told_by_gpus = {joined.nodes[row] for row in np.flatnonzero(own > 0).tolist()}
    settled = np.array([node in told_by_gpus for node in joined.nodes], dtype=bool)
    values[:, _AT["gpu_xid"]] = np.where(np.isnan(xid) | settled, own, xid)
