"""The node's GPUs as the agent tells them: readings, XIDs of both witnesses, and whose processes are on which GPU."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from eacgm.events import GpuEvent, LayerCoverage
from eacgm.producers.gpu_reading import GpuReading, board_name, growth, home_gpus
from eacgm.producers.gpu_sampler import LAYER, GpuSampler
from eacgm.producers.kernel_log import KernelLog
from eacgm.producers.messages import Interval
from eacgm.producers.xids import DeviceXids, XidLedger, parse_xid


class GpuReader:
    """Remembers the last interval's readings and tells what happened since.

    ``coverage`` says how well GPUs are seen; ``node_xids`` are the codes that the kernel logged in the interval.
    """

    def __init__(self, root: str, interval_ns: int) -> None:
        self._sampler = GpuSampler(interval_ns)
        self._log = KernelLog(root)
        self._ledger = XidLedger()
        self._before: dict[str, GpuReading] = {}
        self._now: list[GpuReading] = []
        self._grown: dict[str, dict[str, float | None]] = {}
        self._xids: dict[str, DeviceXids] = {}
        self._lost_xids = 0
        self._uuids_on: dict[str, list[str]] = {}
        self._homes: dict[int, list[str]] = {}
        self._jobs_on: dict[str, set[str]] = {}
        self.coverage = LayerCoverage(layer=LAYER, status="absent", reason="not read yet")
        self.node_xids: list[int] = []

    def advance(self) -> None:
        """Begin an interval: take what the driver and the kernel log have told since the last one."""
        taken = self._sampler.take()
        logged = [found for found in map(parse_xid, self._log.messages()) if found is not None]
        self.coverage = self._judge(taken.coverage)
        self._now = taken.readings or []
        self._grown = {reading.uuid: growth(reading, self._before.get(reading.uuid)) for reading in self._now}
        if self._now:
            self._before = {reading.uuid: reading for reading in self._now}
            self._uuids_on |= _uuids_by_board(self._now)
        self.node_xids = [xid.code for _, xid in logged]
        named = [(board_name(address, ""), xid) for address, xid in logged]
        self._xids = self._ledger.take(named, taken.xids, time.monotonic_ns())
        self._lost_xids += taken.lost_xids

    def gpus_of(self, pid: int) -> list[str]:
        """Return the GPUs that a process works on, or last worked on."""
        silent = {reading.uuid for reading in self._now if reading.processes is None}
        if silent.isdisjoint(self._homes.get(pid, ())):
            homes = home_gpus(pid, self._now)
            if homes:
                self._homes[pid] = homes
        return self._homes.get(pid, [])

    def forget(self, pid: int) -> None:
        """Drop what is remembered of a process that has ended."""
        self._homes.pop(pid, None)

    def events(self, jobs: Mapping[str, int], job_of: Mapping[int, str], interval: Interval) -> list[GpuEvent]:
        """Return the interval's events; ``jobs`` is job -> incarnation, ``job_of`` is pid -> job.

        A GPU is told to the jobs whose processes are on it; while nobody knows them, to those that were on it last;
        one that nobody uses, to every job of the node.
        """
        for reading in self._now:
            if reading.processes is not None:
                self._jobs_on[reading.uuid] = {job_of[pid] for pid in reading.processes if pid in job_of}
        readings = list(self._now)
        for board in sorted(self._xids.keys() - {reading.board for reading in readings}):
            # the driver does not answer, or knows the device no more: the error is told all the same
            readings += [GpuReading(uuid, None, None, 0) for uuid in self._uuids_on.get(board, [board])]
            self._xids |= dict.fromkeys(self._uuids_on.get(board, []), self._xids[board])
        events = [
            self._event(reading, job, jobs[job], interval)
            for reading in readings
            for job in sorted(self._jobs_on.get(reading.uuid, set()) & jobs.keys()) or sorted(jobs)
        ]
        if events:
            events[0].lost += self._lost_xids
            self._lost_xids = 0
        return events

    def close(self) -> None:
        """End the readings."""
        self._sampler.stop()
        self._log.close()

    def _event(self, reading: GpuReading, job: str, incarnation: int, interval: Interval) -> GpuEvent:
        xids = self._xids.get(reading.board, DeviceXids())
        processes = sorted((reading.processes or {}).items())
        memory = [-1 if on.memory_bytes is None else on.memory_bytes for _, on in processes]
        ratios = [np.nan if on.sm_ratio is None else on.sm_ratio for _, on in processes]
        values: dict[str, Any] = {**reading.gauges, **self._grown.get(reading.uuid, {})}
        return GpuEvent(
            **interval.header(job, incarnation),
            role="node",
            gpu_uuid=reading.uuid,
            gpu_index=reading.index,
            lost_device=None if reading.index is None else reading.lost,
            lost=xids.beyond,
            xids=xids.fatal,
            xids_nonfatal=xids.nonfatal,
            xid_subcodes=xids.subcodes,
            process_pid=np.array([pid for pid, _ in processes], dtype=np.int64),
            process_memory_bytes=np.array(memory, dtype=np.int64),
            process_sm_ratio=np.array(ratios, dtype=np.float64),
            **values,
        )

    def _judge(self, coverage: LayerCoverage) -> LayerCoverage:
        """Add to the driver's coverage that the kernel log cannot be read, or was too fast."""
        reason = self._log.failure
        if reason is None and self._log.overwritten:
            reason = "kernel log: messages were overwritten before they were read"
        if reason is None or coverage.status != "attached":
            return coverage
        reason = f"{reason}; XIDs come from NVML alone"
        return LayerCoverage(layer=LAYER, status="partial", reason=reason, probes=coverage.probes)


def _uuids_by_board(readings: list[GpuReading]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for reading in readings:
        found.setdefault(reading.board, []).append(reading.uuid)
    return found
