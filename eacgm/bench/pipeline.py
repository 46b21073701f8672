"""Rank-windows per second of CPU from decoded events to verdict, room by room."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from itertools import islice
from time import perf_counter, process_time, thread_time
from typing import Any

from threadpoolctl import threadpool_limits

from eacgm.config import Config
from eacgm.events import Event
from eacgm.producers.simulation import simulate
from eacgm.producers.simulation_plan import ClusterPlan
from eacgm.streams.pipeline import Pipeline
from eacgm.streams.statistics import Statistics

#: windows in which the detector warms up and refits for the first time; told apart, because they come once
WARM_UP_WINDOWS = 70
#: rank-windows measured after them, about
RANK_WINDOWS = 6_000
LEAST_WINDOWS = 40
#: events pushed between two looks at how far it is
CHUNK_EVENTS = 4096
ROOMS = ("join", "features", "detect", "diagnose", "alert")


def run(sizes: Sequence[int] = (8, 64, 256, 1024), rank_windows: int = RANK_WINDOWS) -> list[dict[str, Any]]:
    """Return one row per number of ranks; the load is the simulated cluster's, a healthy job of all layers.

    ``rank_windows_per_second`` counts CPU seconds of the pipeline's thread after the warm-up, so that other work on
    the machine does not count; ``..._from_start`` counts all CPU seconds from the first event on, the warm-up and its
    refits (``refit_cpu_seconds``, in a thread of their own) included. ``*_microseconds`` is each room's wall time per
    rank-window after the warm-up.
    """
    with threadpool_limits(1):
        return [_measure(n_ranks, max(rank_windows // n_ranks, LEAST_WINDOWS)) for n_ranks in sizes]


def _measure(n_ranks: int, n_windows: int) -> dict[str, Any]:
    events = list(simulate(ClusterPlan(n_ranks=n_ranks, seconds=WARM_UP_WINDOWS + n_windows, seed=1)))
    # what waits to be pushed would not be in memory in life: keep the collector from walking through it
    gc.collect()
    gc.freeze()
    pipeline, waiting = Pipeline(Config()), iter(events)
    others_began = process_time() - thread_time()
    young_seconds, _ = _push(pipeline, waiting, WARM_UP_WINDOWS)
    young = pipeline.statistics()
    steady_seconds, steady_wall_seconds = _push(pipeline, waiting, None)
    told = pipeline.statistics()
    refit_seconds = process_time() - thread_time() - others_began
    gc.unfreeze()
    rank_windows = told.rank_windows - young.rank_windows
    rooms = {room: _room_seconds(told, room) - _room_seconds(young, room) for room in ROOMS}
    rooms = {"window": steady_wall_seconds - sum(rooms.values()), **rooms}
    before = sum(rooms[room] for room in ("window", "join", "features"))
    return {
        "ranks": n_ranks,
        "windows": told.frames,
        "events_per_rank_window": round(told.events / told.rank_windows, 2),
        "rank_windows_per_second": round(rank_windows / steady_seconds),
        "rank_windows_per_second_to_frames": round(rank_windows / before),
        "rank_windows_per_second_from_start": round(
            told.rank_windows / (young_seconds + steady_seconds + refit_seconds)
        ),
        "refit_cpu_seconds": round(refit_seconds, 2),
        **{f"{room}_microseconds": round(seconds / rank_windows * 1e6, 1) for room, seconds in rooms.items()},
    }


def _push(pipeline: Pipeline, events: Iterator[Event], n_windows: int | None) -> tuple[float, float]:
    """Push so many windows, or all that are left; return the CPU and wall seconds that it took this thread."""
    last = None if n_windows is None else pipeline.statistics().frames + n_windows
    began, began_wall = thread_time(), perf_counter()
    while some := list(islice(events, CHUNK_EVENTS)):
        for event in some:
            pipeline.push(event)
        if last is not None and pipeline.statistics().frames >= last:
            break
    if last is None:
        pipeline.finish()
    return thread_time() - began, perf_counter() - began_wall


def _room_seconds(told: Statistics, room: str) -> float:
    return float(getattr(told, f"{room}_seconds"))
