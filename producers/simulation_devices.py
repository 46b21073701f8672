"""What a simulated rank's GPU and host show in each interval; matrices of shape ``(n_intervals, n_ranks)``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eacgm.events import FloatArray
from eacgm.producers.simulation_plan import ClusterPlan, Fault
from eacgm.producers.simulation_readings import CHECKPOINT_BYTES, COPY_BYTES, Shares

GPU_MEMORY_BYTES = 80 * 1024**3
GPU_POWER_LIMIT_WATTS = 400.0
#: NVML's clock event reason for the software power cap; healthy cards at full load show it now and then
SOFTWARE_POWER_CAP = 0x4
THROTTLED_CLOCK_RATIO = 0.6
LEAK_BYTES_PER_SECOND = 60e6
#: XID 79: the GPU has fallen off the bus
XID_OFF_THE_BUS = 79

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Devices:
    """Readings of GPU and host, named as in the events; ``lost`` tells GPUs that no longer answer."""

    utilization_ratio: FloatArray
    memory_used_bytes: FloatArray
    power_watts: FloatArray
    temperature_celsius: FloatArray
    sm_clock_hertz: FloatArray
    throttle_reasons: FloatArray
    pcie_received_bytes: FloatArray
    pcie_replays: FloatArray
    lost: BoolArray
    xid: BoolArray
    cpu_seconds: FloatArray
    run_queue_wait_seconds: FloatArray
    io_wait_seconds: FloatArray
    io_written_bytes: FloatArray
    rss_bytes: FloatArray
    net_retransmits: FloatArray
    net_rtt_seconds: FloatArray
    worker_io_wait_seconds: FloatArray
    cpu_pressure_ratio: FloatArray


def devices(plan: ClusterPlan, spent: Shares) -> Devices:
    """Return all readings; the seed decides their noise."""
    random = np.random.default_rng([plan.seed, 2])
    shape = spent.work.shape

    def noise(spread: float) -> FloatArray:
        return np.exp(random.normal(0, spread, shape))

    struck = {kind: _struck(plan, kind) for kind in {fault.kind for fault in plan.faults}}

    def hit(kind: str) -> FloatArray:
        return struck.get(kind, np.zeros(shape))

    busy, spin = np.minimum(1.0, spent.work), np.minimum(1.0, spent.wait)
    throttled = hit("gpu_throttle")
    power = (80 + 270 * busy * (1 - 0.45 * throttled) + 110 * spin) * noise(0.02)
    capped = (throttled > 0.5) | (random.random(shape) < 0.03 * busy)
    seconds = np.arange(plan.seconds, dtype=np.float64)[:, np.newaxis]
    lost, xid = _off_the_bus(plan)
    sends = 0.02 + 6.0 * hit("network")
    return Devices(
        utilization_ratio=np.clip(np.round((busy + spin) * noise(0.01), 2), 0, 1),
        memory_used_bytes=_memory(plan, random),
        power_watts=power,
        temperature_celsius=np.round(34 + 30 * _smoothed(power / 350, 15.0) + random.normal(0, 0.4, shape)),
        sm_clock_hertz=1.41e9 * (1 - (1 - THROTTLED_CLOCK_RATIO) * throttled) * noise(0.004),
        throttle_reasons=np.where(capped, SOFTWARE_POWER_CAP, 0),
        pcie_received_bytes=COPY_BYTES * 4 * busy * noise(0.05),
        pcie_replays=random.poisson(15.0 * hit("pcie")).astype(np.float64),
        lost=lost,
        xid=xid,
        cpu_seconds=(spent.work * 0.95 + 0.1 * spent.wait + 0.2 * spent.saving + 0.05) * noise(0.03),
        run_queue_wait_seconds=(spent.queue * 1.1 + 0.003) * noise(0.2),
        io_wait_seconds=(0.5 * spent.saving + 0.0005) * noise(0.3),
        io_written_bytes=np.round(_written(plan, spent) + np.where(random.random(shape) < 0.2, 4096.0, 0.0)),
        rss_bytes=np.round((8e9 + 2e3 * seconds) * noise(0.001)),
        net_retransmits=random.poisson(sends).astype(np.float64),
        net_rtt_seconds=1.2e-4 * (1 + 4.0 * hit("network")) * noise(0.1),
        worker_io_wait_seconds=(0.01 + 0.8 * hit("data_stall") * np.minimum(1.0, spent.asleep)) * noise(0.3),
        cpu_pressure_ratio=np.clip(0.02 * noise(0.3) + 0.5 * hit("host_contention"), 0, 1),
    )


def _struck(plan: ClusterPlan, kind: str) -> FloatArray:
    """Return the share of each interval and rank in which a kind of fault is present."""
    share = np.zeros((plan.seconds, plan.n_ranks))
    for fault in plan.faults:
        if fault.kind == kind:
            share[:, list(fault.ranks)] = np.maximum(share[:, list(fault.ranks)], _presence(plan, fault)[:, np.newaxis])
    return share


def _presence(plan: ClusterPlan, fault: Fault) -> FloatArray:
    begin = np.arange(plan.seconds, dtype=np.float64)
    presence: FloatArray = np.clip(np.minimum(begin + 1, fault.end_s) - np.maximum(begin, fault.onset_s), 0, 1)
    return presence


def _off_the_bus(plan: ClusterPlan) -> tuple[BoolArray, BoolArray]:
    present = _struck(plan, "gpu_hardware") > 0
    before = np.vstack((np.zeros((1, plan.n_ranks), dtype=bool), present[:-1]))
    return present & before, present & ~before


def _memory(plan: ClusterPlan, random: np.random.Generator) -> FloatArray:
    """Return device memory: it grows while the allocator warms up, then stays, unless it leaks."""
    seconds = np.arange(plan.seconds, dtype=np.float64)[:, np.newaxis]
    warm = 38e9 * (0.7 + 0.3 * (1 - np.exp(-seconds / max(plan.warmup_seconds / 2, 1e-9))))
    leaked = np.cumsum(_struck(plan, "gpu_memory") * LEAK_BYTES_PER_SECOND, axis=0)
    trait = random.uniform(0.98, 1.02, plan.n_ranks)
    return np.minimum(np.round(warm * trait + leaked), 0.99 * GPU_MEMORY_BYTES)


def _smoothed(values: FloatArray, time_constant: float) -> FloatArray:
    """Return the values as a slow sensor follows them, down the first axis."""
    out = np.empty_like(values)
    level = values[0]
    for row, value in enumerate(values):
        level = level + (value - level) / time_constant
        out[row] = level
    return out


def _written(plan: ClusterPlan, spent: Shares) -> FloatArray:
    """Return the bytes written: a checkpoint at full speed, or a trickle while it stalls."""
    stalled = _struck(plan, "checkpoint_stall")
    rate = CHECKPOINT_BYTES / max(plan.checkpoint_seconds, 1e-9)
    return spent.saving * np.where(stalled > 0, rate / 50, rate)
