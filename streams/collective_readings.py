"""What a window's collectives say of each rank, put into a frame's columns."""

from __future__ import annotations

import numpy as np

from eacgm.events import CollectivesEvent, FloatArray
from eacgm.streams import scatter
from eacgm.streams.catalogue import CATALOGUE
from eacgm.streams.joined_window import JoinedWindow
from eacgm.streams.placed import Placed

_AT = {name: index for index, name in enumerate(CATALOGUE)}


def collective_readings(values: FloatArray, joined: JoinedWindow, per_step: FloatArray, window_seconds: float) -> None:
    """Fill the columns of collectives of ``values``, shape ``(n_ranks, n_columns)``.

    ``per_step`` of shape ``(n_ranks,)`` is how many collectives a step issues; counters are scaled to
    ``window_seconds``.
    """
    calls, placed = joined.collective_calls, joined.collectives
    if not placed.events:
        return
    n_ranks = joined.ranks.size
    rows = placed.rows
    count = np.bincount(calls.row, minlength=n_ranks).astype(np.float64)
    seconds = scatter.counted(calls.row, (calls.end_ns - calls.start_ns) * 1e-9, n_ranks)
    values[:, _AT["collective_seconds"]] = scatter.ratio(seconds, count) * per_step
    scale = scatter.to_window(placed.covered_seconds(n_ranks), window_seconds)
    values[rows, _AT["collective_count"]] = (count * scale)[rows]
    values[:, _AT["collective_lag_seconds"]] = joined.lag_seconds
    values[rows, _AT["collective_seq"]] = joined.position[rows]
    sized = calls.payload_bytes >= 0
    moved = scatter.counted(calls.row[sized], calls.payload_bytes[sized], n_ranks) * scale
    # calls of which none tells its size moved an unknown number of bytes
    untold = (count > 0) & (np.bincount(calls.row[sized], minlength=n_ranks) == 0)
    values[rows, _AT["collective_bytes"]] = np.where(untold, np.nan, moved)[rows]
    failed = np.bincount(calls.row[calls.return_code != 0], minlength=n_ranks)
    values[rows, _AT["collective_errors"]] = failed[rows]
    _in_flight(values, placed)


def _in_flight(values: FloatArray, placed: Placed[CollectivesEvent]) -> None:
    """Fill what is in flight at the window's end: a process's last message says it."""
    opened = np.array([len(event.open_communicator) for event in placed.events])
    ages = np.zeros(opened.size)
    for index in np.flatnonzero(opened).tolist():
        event = placed.events[index]
        ages[index] = max(event.end_ns - min(event.open_call_start_ns.tolist()), 0) * 1e-9
    values[placed.rows, _AT["collective_open_count"]] = opened
    values[placed.rows, _AT["collective_open_seconds"]] = ages
    values[:, _AT["call_open_seconds"]] = np.fmax(
        values[:, _AT["call_open_seconds"]], values[:, _AT["collective_open_seconds"]]
    )
