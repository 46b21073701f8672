"""A joined window: what all ranks of one incarnation of a job told in it, a place per rank."""

from __future__ import annotations

from dataclasses import dataclass

from eacgm.events import (
    BoolArray,
    CallsEvent,
    CollectivesEvent,
    FloatArray,
    GpuEvent,
    HostEvent,
    IntArray,
    SamplesEvent,
)
from eacgm.streams.collective_table import CollectiveTable
from eacgm.streams.placed import Placed


@dataclass(slots=True, kw_only=True)
class JoinedWindow:
    """One window of one incarnation of a job; arrays have a place per rank.

    ``present``: something was told of the process; ``ended``: it ended in this window (``exit_code`` then, NaN if
    unknown); ``gone``: it had ended before. A rank that is neither present nor gone is silent. ``moved`` gives the
    place that each row of the previous window has now, None if nobody is new. ``lag_seconds`` and ``position``: see
    ``CollectiveMatch``.
    """

    start_ns: int
    end_ns: int
    late: int
    ranks: IntArray
    nodes: list[str]
    groups: list[str]
    moved: IntArray | None
    present: BoolArray
    ended: BoolArray
    gone: BoolArray
    exit_code: FloatArray
    lost: IntArray
    hosts: Placed[HostEvent]
    workers: Placed[HostEvent]
    node_hosts: Placed[HostEvent]
    calls: Placed[CallsEvent]
    collectives: Placed[CollectivesEvent]
    gpus: Placed[GpuEvent]
    samples: Placed[SamplesEvent]
    collective_calls: CollectiveTable
    lag_seconds: FloatArray
    position: FloatArray
