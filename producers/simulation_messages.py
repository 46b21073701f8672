"""The messages of a simulated cluster's agents: what they tell of one rank, GPU or node in one interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eacgm.events import (
    CallsEvent,
    CollectivesEvent,
    FloatArray,
    GpuEvent,
    HostEvent,
    IntArray,
    LayerCoverage,
    ProcessEvent,
)
from eacgm.producers.simulation_devices import GPU_MEMORY_BYTES, GPU_POWER_LIMIT_WATTS, XID_OFF_THE_BUS, Devices
from eacgm.producers.simulation_plan import START_SECONDS, ClusterPlan
from eacgm.producers.simulation_readings import BUCKET_BYTES, CallSeries, CollectiveSeries, Shares

SECOND_NS = 1_000_000_000
COMMUNICATOR = "c10d/0"
LAYERS = ("pytorch", "collective", "cuda", "python")
CORES_PER_NODE = 64


@dataclass(frozen=True, slots=True)
class Clock:
    """A node's clock: it shows the true time plus ``offset_s``."""

    offset_s: float

    def times_ns(self, true_s: FloatArray) -> IntArray:
        """Return what the clock shows, in UTC ns, at true times in seconds from the recording's start."""
        return START_SECONDS * SECOND_NS + np.round((true_s + self.offset_s) * 1e9).astype(np.int64)


def head(plan: ClusterPlan, node: int, rank: int | None, interval: int) -> dict[str, Any]:
    """Return what every message says: whose interval it is, and when."""
    start_ns = (START_SECONDS + interval) * SECOND_NS
    return {
        "job": plan.job,
        "node": f"n{node}",
        "rank": rank,
        "pid": 0 if rank is None else 10_000 + rank,
        "role": "node" if rank is None else "rank",
        "start_ns": start_ns,
        "end_ns": start_ns + SECOND_NS,
        "clock_error_ns": plan.clock_error_ns,
    }


def gpu_uuid(rank: int) -> str:
    """Return the name of a rank's GPU."""
    return f"GPU-{rank:08x}-0000-4000-8000-000000000000"


def process_event(head: dict[str, Any], plan: ClusterPlan, rank: int, exit_code: int | None) -> ProcessEvent:
    """Return who a rank's process is; ``exit_code`` is None while it runs."""
    return ProcessEvent(
        **head,
        local_rank=rank % plan.ranks_per_node,
        world_size=plan.n_ranks,
        local_world_size=len(plan.ranks_on(plan.node_of(rank))),
        command="train.py",
        gpu_uuids=[gpu_uuid(rank)],
        state="running" if exit_code is None else "exited",
        exit_code=exit_code,
        layers=[LayerCoverage(layer=layer, status="attached", probes=4) for layer in LAYERS],
    )


def calls_event(head: dict[str, Any], series: list[CallSeries], interval: int, end_s: float) -> CallsEvent:
    """Return a rank's calls of an interval that ended at the true time ``end_s``, functions without any left out."""
    told = [one for one in series if one.first[interval] < one.last[interval] or one.open_since_s[interval] <= end_s]
    table = np.array([_call_columns(one, interval, end_s) for one in told], dtype=np.int64).reshape(-1, 7)
    histogram = [(row, *cell) for row, one in enumerate(told) for cell in _call_histogram(one, interval)]
    cells = np.array(histogram, dtype=np.int64).reshape(-1, 3)
    return CallsEvent(
        **head,
        layer=[one.layer for one in told],
        function=[one.function for one in told],
        count=table[:, 0],
        errors=table[:, 1],
        payload_bytes=table[:, 2],
        total_ns=table[:, 3],
        max_ns=table[:, 4],
        open_count=table[:, 5],
        open_age_ns=table[:, 6],
        histogram_row=cells[:, 0],
        histogram_bucket=cells[:, 1],
        histogram_count=cells[:, 2],
    )


def _call_columns(one: CallSeries, interval: int, end_s: float) -> tuple[int, ...]:
    ended = one.total_s[one.first[interval] : one.last[interval]]
    count = len(ended) * one.calls
    longest_ns = round(float(ended.max()) / one.calls * 1e9) if count else 0
    since_s = float(one.open_since_s[interval])
    is_open = since_s <= end_s
    age_ns = round((end_s - since_s) * 1e9) if is_open else 0
    return count, 0, count * one.payload_bytes, round(float(ended.sum()) * 1e9), longest_ns, int(is_open), age_ns


def _call_histogram(one: CallSeries, interval: int) -> list[tuple[int, int]]:
    each_ns = one.total_s[one.first[interval] : one.last[interval]] / one.calls * 1e9
    buckets = np.bincount(np.log2(np.maximum(each_ns, 1)).astype(np.int64)).tolist()
    return [(bucket, count * one.calls) for bucket, count in enumerate(buckets) if count]


def collectives_event(head: dict[str, Any], series: CollectiveSeries, interval: int, clock: Clock) -> CollectivesEvent:
    """Return a rank's collectives that ended in an interval, and the one in flight at its end."""
    ended = slice(int(series.first[interval]), int(series.last[interval]))
    going = int(series.open_[interval])
    open_ = slice(going, going + 1) if going >= 0 else slice(0, 0)
    barrier = series.barrier[ended]
    return CollectivesEvent(
        **head,
        communicator=[COMMUNICATOR] * len(barrier),
        operation=["barrier" if one else "allreduce" for one in barrier.tolist()],
        call_sequence=series.sequence[ended],
        payload_bytes=np.where(barrier, 0, BUCKET_BYTES),
        call_start_ns=clock.times_ns(series.start_s[ended]),
        call_end_ns=clock.times_ns(series.end_s[ended]),
        return_code=np.zeros(len(barrier), dtype=np.int64),
        open_communicator=[COMMUNICATOR] * (open_.stop - open_.start),
        open_operation=["barrier" if one else "allreduce" for one in series.barrier[open_].tolist()],
        open_call_sequence=series.sequence[open_],
        open_call_start_ns=clock.times_ns(series.start_s[open_]),
    )


def host_event(
    head: dict[str, Any], plan: ClusterPlan, at: tuple[int, int], spent: Shares, seen: Devices, moved_bytes: float
) -> HostEvent:
    """Return what the kernel tells of a rank's process; ``at`` is (interval, rank)."""
    ring = 2 * (plan.n_ranks - 1) / plan.n_ranks
    work, queue, asleep = (float(values[at]) for values in (spent.work, spent.queue, spent.asleep))
    return HostEvent(
        **head,
        cpu_seconds=float(seen.cpu_seconds[at]),
        run_queue_wait_seconds=float(seen.run_queue_wait_seconds[at]),
        off_cpu_seconds=asleep + float(spent.wait[at]),
        io_wait_seconds=float(seen.io_wait_seconds[at]),
        throttled_seconds=0.0,
        major_faults=0.0,
        rss_bytes=float(seen.rss_bytes[at]),
        io_read_bytes=0.0,
        io_written_bytes=float(seen.io_written_bytes[at]),
        net_sent_bytes=moved_bytes * ring,
        net_received_bytes=moved_bytes * ring,
        net_retransmits=float(seen.net_retransmits[at]),
        net_rtt_seconds=float(seen.net_rtt_seconds[at]),
        stopped=False,
        stopped_seconds=0.0,
        threads=40,
        step_thread_cpu_seconds=max(0.0, work - queue),
        step_thread_run_queue_wait_seconds=queue,
        step_thread_blocked_seconds=asleep,
    )


def worker_event(head: dict[str, Any], at: tuple[int, int], spent: Shares, seen: Devices) -> HostEvent:
    """Return what the kernel tells of a rank's data loader."""
    busy = 0.3 * min(1.0, float(spent.work[at] + spent.wait[at]))
    return HostEvent(
        **{**head, "role": "worker", "pid": head["pid"] + 100_000},
        cpu_seconds=busy,
        io_wait_seconds=float(seen.worker_io_wait_seconds[at]),
        io_read_bytes=2e7 * busy,
        rss_bytes=1.2e9,
        threads=4,
    )


def gpu_event(head: dict[str, Any], rank: int, local_rank: int, at: tuple[int, int], seen: Devices) -> GpuEvent:
    """Return a GPU's readings: none but its loss once it has fallen off the bus."""
    whose = {**head, "rank": None, "pid": 0, "role": "node"}
    xids = [XID_OFF_THE_BUS] if seen.xid[at] else []
    if seen.lost[at]:
        return GpuEvent(**whose, gpu_uuid=gpu_uuid(rank), gpu_index=local_rank, lost_device=True, xids=xids)
    return GpuEvent(
        **whose,
        gpu_uuid=gpu_uuid(rank),
        gpu_index=local_rank,
        utilization_ratio=float(seen.utilization_ratio[at]),
        memory_used_bytes=float(seen.memory_used_bytes[at]),
        memory_total_bytes=float(GPU_MEMORY_BYTES),
        power_watts=float(seen.power_watts[at]),
        power_limit_watts=GPU_POWER_LIMIT_WATTS,
        temperature_celsius=float(seen.temperature_celsius[at]),
        sm_clock_hertz=float(seen.sm_clock_hertz[at]),
        memory_clock_hertz=1.6e9,
        throttle_reasons=int(seen.throttle_reasons[at]),
        ecc_errors=0.0,
        pcie_received_bytes=float(seen.pcie_received_bytes[at]),
        pcie_replays=float(seen.pcie_replays[at]),
        nvlink_errors=0.0,
        lost_device=False,
        xids=xids,
        process_pid=np.array([head["pid"]], dtype=np.int64),
        process_memory_bytes=np.array([round(float(seen.memory_used_bytes[at]))], dtype=np.int64),
        process_sm_ratio=np.array([float(seen.utilization_ratio[at])]),
    )


def node_event(head: dict[str, Any], ranks: tuple[int, ...], interval: int, seen: Devices) -> HostEvent:
    """Return what the kernel tells of a node."""
    own = list(ranks)
    pressure = float(seen.cpu_pressure_ratio[interval, own].max())
    return HostEvent(
        **head,
        cpu_seconds=float(seen.cpu_seconds[interval, own].sum()),
        load=float(seen.cpu_seconds[interval, own].sum()) + pressure * CORES_PER_NODE,
        cpu_steal_seconds=0.0,
        cpu_pressure_ratio=pressure,
        io_pressure_ratio=min(1.0, float(seen.io_wait_seconds[interval, own].max())),
        memory_pressure_ratio=0.0,
        memory_available_bytes=9e11,
        oom_kills=0.0,
        xids=[XID_OFF_THE_BUS] * int(seen.xid[interval, own].sum()),
    )
