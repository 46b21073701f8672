"""Rank-windows per second of CPU from decoded events to verdict, room by room."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from time import perf_counter, process_time
from typing import Any

from threadpoolctl import threadpool_limits

from eacgm.config import Config
from eacgm.producers.simulation import simulate
from eacgm.producers.simulation_plan import ClusterPlan
from eacgm.streams.pipeline import Pipeline

#: rank-windows per size, about; the first windows are warm-up like in life
RANK_WINDOWS = 6_000
ROOMS = ("window", "join", "features", "detect", "diagnose", "alert")


def run(sizes: Sequence[int] = (8, 64, 256), rank_windows: int = RANK_WINDOWS) -> list[dict[str, Any]]:
    """Return one row per number of ranks; the load is the simulated cluster's, a healthy job of all layers.

    ``rank_windows_per_second`` counts CPU seconds of the whole process, so that other work on the machine does not
    count; ``*_microseconds`` is each room's wall time per rank-window.
    """
    with threadpool_limits(1):
        return [_measure(n_ranks, max(rank_windows // n_ranks, 60)) for n_ranks in sizes]


def _measure(n_ranks: int, seconds: int) -> dict[str, Any]:
    events = list(simulate(ClusterPlan(n_ranks=n_ranks, seconds=seconds, seed=1)))
    # what waits to be pushed would not be in memory in life: keep the collector from walking through it
    gc.collect()
    gc.freeze()
    pipeline = Pipeline(Config())
    began, began_cpu = perf_counter(), process_time()
    for event in events:
        pipeline.push(event)
    pipeline.finish()
    cpu_seconds, wall_seconds = process_time() - began_cpu, perf_counter() - began
    gc.unfreeze()
    told = pipeline.statistics()
    rooms = {room: getattr(told, f"{room}_seconds", 0.0) for room in ROOMS}
    rooms["window"] = wall_seconds - sum(rooms.values())
    before = sum(rooms[room] for room in ("window", "join", "features"))
    return {
        "ranks": n_ranks,
        "windows": told.frames,
        "events_per_rank_window": round(told.events / told.rank_windows, 2),
        "rank_windows_per_second": round(told.rank_windows / cpu_seconds),
        "rank_windows_per_second_to_frames": round(told.rank_windows / before),
        **{f"{room}_microseconds": round(rooms[room] / told.rank_windows * 1e6, 1) for room in ROOMS},
    }
