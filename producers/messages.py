"""One interval's events: what was read and traced, put into the classes that travel. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eacgm.events import CallsEvent, CollectivesEvent, HostEvent, LayerCoverage, ProcessEvent
from eacgm.producers.observation import CallColumns, Observation
from eacgm.producers.processes import Process

#: field of HostEvent -> reading; None where it is unsupported or there is nothing yet to compare with
Readings = dict[str, float | int | bool | None]


@dataclass(frozen=True, slots=True)
class Interval:
    """The interval of all of a node's events (UTC ns), and the node that tells them."""

    start_ns: int
    end_ns: int
    node: str
    clock_error_ns: int | None

    def header(self, job: str, incarnation: int) -> dict[str, Any]:
        """Return the fields that every event of a job begins with."""
        return {
            "job": job,
            "incarnation": incarnation,
            "node": self.node,
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
            "clock_error_ns": self.clock_error_ns,
        }

    def header_of(self, process: Process) -> dict[str, Any]:
        """Return the fields that every event of a process begins with."""
        return self.header(process.identity.job, process.incarnation) | {
            "rank": process.identity.rank,
            "pid": process.pid,
            "role": process.role,
        }


def process_event(
    process: Process, layers: Sequence[LayerCoverage], interval: Interval, gpus: Sequence[str] = ()
) -> ProcessEvent:
    """Return a process's identity, state and coverage; ``gpus`` are those that it works on.

    Complaints about its environment are told as the coverage of a layer called ``identity``.
    """
    identity = process.identity
    told = list(layers)
    if identity.problems:
        status = "failed" if identity.rank is None else "partial"
        told.append(LayerCoverage(layer="identity", status=status, reason="; ".join(identity.problems)))
    return ProcessEvent(
        **interval.header_of(process),
        local_rank=identity.local_rank,
        world_size=identity.world_size,
        local_world_size=identity.local_world_size,
        group=identity.group,
        container=process.container,
        command=process.stat.command,
        gpu_uuids=list(gpus),
        state=process.state,
        exit_code=process.exit_code,
        layers=told,
    )


def calls_event(process: Process, observation: Observation, interval: Interval) -> CallsEvent:
    """Return the interval's calls: the functions that returned in it or are in flight at its end."""
    columns = _without_silent_rows(observation.calls)
    return CallsEvent(
        **interval.header_of(process),
        lost=observation.lost,
        cuda_allocated_bytes=observation.cuda_allocated_bytes,
        **columns,
    )


def collectives_event(process: Process, observation: Observation, interval: Interval) -> CollectivesEvent:
    """Return the interval's collectives."""
    return CollectivesEvent(**interval.header_of(process), **observation.collectives.columns())


def host_event(
    process: Process, readings: Mapping[str, Any], observation: Observation | None, interval: Interval
) -> HostEvent:
    """Return what the host tells of a process; the tracer's value is finer than the one of /proc, where it has one."""
    values = dict(readings)
    if observation is not None:
        values |= {name: value for name, value in observation.host.columns().items() if value is not None}
        values |= observation.peers.columns()
    if process.state != "running":
        # readings at the interval's end: there is no process any more
        values |= dict.fromkeys(("stopped", "threads"))
    return HostEvent(**interval.header_of(process), **values)


def node_event(job: str, incarnation: int, readings: Mapping[str, Any], lost: int, interval: Interval) -> HostEvent:
    """Return what the node tells, for one of its jobs."""
    return HostEvent(**interval.header(job, incarnation), role="node", lost=lost, **readings)


def _without_silent_rows(calls: CallColumns) -> dict[str, Any]:
    """Return the columns without the rows of functions that neither returned nor are in flight."""
    kept = (calls.count > 0) | (calls.open_count > 0)
    # an error may be told one interval after its call was
    kept[calls.error_row] = True
    columns = calls.columns()
    if kept.all():
        return columns
    rows = np.flatnonzero(kept)
    new_row = np.cumsum(kept) - 1
    buckets, codes = kept[calls.histogram_row], kept[calls.error_row]
    for name, column in columns.items():
        if name.startswith("histogram_"):
            columns[name] = column[buckets]
        elif name.startswith("error_"):
            columns[name] = column[codes]
        elif isinstance(column, list):
            columns[name] = [column[row] for row in rows]
        else:
            columns[name] = column[rows]
    for name in ("histogram_row", "error_row"):
        columns[name] = new_row[columns[name]]
    return columns
