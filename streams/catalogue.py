"""The catalogue of features: every name that has a meaning, with its unit, its scale and its layer.

A reader adds a feature by adding a line. A name that is not here is still a feature: a gauge on a linear scale,
compared between peers, of layer ``other``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Feature:
    """One named quantity of one rank and one window.

    ``unit`` is SI (``seconds``, ``bytes``, ``watts``, ``celsius``, ``hertz``, ``ratio``) or ``count``, ``bits``, ``code``.
    ``kind`` says how it is told: ``mean`` over the steps or calls that ended in the window (absent if none did),
    ``total`` of the calls that returned (absent if none did), ``counter`` what happened in the window (0 if
    nothing), ``gauge`` a reading, ``position`` a count that only grows, ``sign`` a fact that is 0 in health.
    ``scale`` is ``log`` where ratios matter and ``linear`` where differences do; ``floor`` is the smallest value
    that means anything, in the feature's unit. ``scored`` is False for what the mixture must not see (positions,
    codes, signs: rules read those).
    """

    name: str
    layer: str
    unit: str
    kind: str
    scale: str
    floor: float
    scored: bool = True
    doc: str = ""


_TABLE = (
    # name, layer, unit, kind, scale, floor, scored, doc
    ("step_seconds", "pytorch", "seconds", "mean", "log", 1e-3, True, "one training step, wall time"),
    ("compute_seconds", "pytorch", "seconds", "mean", "log", 1e-3, True, "of a step: own work, neither waiting for peers nor for data"),
    ("backward_seconds", "pytorch", "seconds", "mean", "log", 1e-3, True, "autograd engine, one backward, wall time"),
    ("optimizer_seconds", "pytorch", "seconds", "mean", "log", 1e-4, True, "optimizer step"),
    ("data_wait_seconds", "python", "seconds", "mean", "log", 1e-3, True, "of a step: asleep outside every traced call, usually for the data loader"),
    ("step_count", "pytorch", "count", "counter", "log", 0.5, False, "steps that ended in the window"),
    ("gc_seconds", "python", "seconds", "total", "log", 1e-3, True, "garbage collections that ended in the window"),
    ("gc_count", "python", "count", "counter", "log", 1.0, False, "garbage collections that ended in the window"),
    ("collective_seconds", "collective", "seconds", "mean", "log", 1e-3, True, "one step's (or call's) collectives, waiting for peers included"),
    ("collective_lag_seconds", "collective", "seconds", "mean", "log", 1e-3, True, "how long after the first rank this one entered matched collectives"),
    ("collective_count", "collective", "count", "counter", "log", 0.5, True, "collectives issued"),
    ("collective_bytes", "collective", "bytes", "counter", "log", 1024.0, True, "bytes of the collectives issued"),
    ("collective_seq", "collective", "count", "position", "linear", 1.0, False, "last completed collective, summed over communicators"),
    ("collective_open_count", "collective", "count", "gauge", "linear", 1.0, False, "collectives in flight at the window's end"),
    ("collective_open_seconds", "collective", "seconds", "gauge", "log", 1e-2, False, "age of the oldest collective in flight"),
    ("collective_errors", "collective", "count", "sign", "linear", 1.0, False, "collectives that returned an error"),
    ("call_open_seconds", "pytorch", "seconds", "gauge", "log", 1e-2, False, "age of the oldest traced call in flight, any layer"),
    ("cuda_launches", "cuda", "count", "counter", "log", 1.0, True, "kernels and graphs launched"),
    ("cuda_launch_seconds", "cuda", "seconds", "counter", "log", 1e-4, True, "host time in launches"),
    ("cuda_sync_seconds", "cuda", "seconds", "total", "log", 1e-3, True, "waiting for the device"),
    ("cuda_memcpy_seconds", "cuda", "seconds", "total", "log", 1e-4, True, "copies"),
    ("cuda_memcpy_bytes", "cuda", "bytes", "counter", "log", 1024.0, True, "bytes copied"),
    ("cuda_errors", "cuda", "count", "sign", "linear", 1.0, False, "CUDA calls that returned an error"),
    ("cuda_allocated_bytes", "cuda", "bytes", "gauge", "log", 1048576.0, True, "device memory allocated and not freed"),
    ("gpu_utilization_ratio", "gpu", "ratio", "gauge", "linear", 0.02, True, "share of time with a kernel running; 1 while only waiting"),
    ("gpu_power_watts", "gpu", "watts", "gauge", "log", 10.0, True, "board power"),
    ("gpu_power_limit_watts", "gpu", "watts", "gauge", "log", 10.0, True, "enforced power limit"),
    ("gpu_temperature_celsius", "gpu", "celsius", "gauge", "linear", 1.0, True, "core temperature"),
    ("gpu_sm_clock_hertz", "gpu", "hertz", "gauge", "log", 1e7, True, "SM clock"),
    ("gpu_memory_clock_hertz", "gpu", "hertz", "gauge", "log", 1e7, True, "memory clock"),
    ("gpu_memory_used_bytes", "gpu", "bytes", "gauge", "log", 1048576.0, True, "device memory in use"),
    ("gpu_memory_total_bytes", "gpu", "bytes", "gauge", "log", 1048576.0, False, "device memory there is"),
    ("gpu_memory_activity_ratio", "gpu", "ratio", "gauge", "linear", 0.02, True, "memory controller activity"),
    ("gpu_throttle_reasons", "gpu", "bits", "sign", "linear", 1.0, False, "NVML clock event reasons, a bit mask"),
    ("gpu_ecc_errors", "gpu", "count", "position", "linear", 1.0, False, "uncorrected ECC errors so far"),
    ("gpu_xid", "gpu", "code", "sign", "linear", 1.0, False, "XID code in its window, else 0"),
    ("gpu_lost", "gpu", "count", "sign", "linear", 1.0, False, "1 once NVML says that the GPU is lost"),
    ("pcie_sent_bytes", "gpu", "bytes", "counter", "log", 1024.0, True, "PCIe bytes to the host"),
    ("pcie_received_bytes", "gpu", "bytes", "counter", "log", 1024.0, True, "PCIe bytes from the host"),
    ("pcie_replays", "gpu", "count", "counter", "log", 1.0, True, "PCIe replays"),
    ("nvlink_errors", "gpu", "count", "counter", "log", 1.0, True, "NVLink errors"),
    ("net_sent_bytes", "network", "bytes", "counter", "log", 1024.0, True, "TCP bytes sent"),
    ("net_received_bytes", "network", "bytes", "counter", "log", 1024.0, True, "TCP bytes received"),
    ("net_retransmits", "network", "count", "counter", "log", 1.0, True, "TCP segments sent again"),
    ("net_rtt_seconds", "network", "seconds", "gauge", "log", 1e-5, True, "TCP round trip"),
    ("cpu_seconds", "host", "seconds", "counter", "log", 1e-2, True, "CPU time, all threads"),
    ("run_queue_wait_seconds", "host", "seconds", "counter", "log", 1e-2, True, "runnable, waiting for a CPU, all threads"),
    ("throttled_seconds", "host", "seconds", "counter", "log", 1e-2, True, "kept off the CPU by a cgroup quota"),
    ("io_wait_seconds", "storage", "seconds", "counter", "log", 1e-3, True, "waiting for block I/O"),
    ("io_read_bytes", "storage", "bytes", "counter", "log", 4096.0, True, "bytes read from storage"),
    ("io_written_bytes", "storage", "bytes", "counter", "log", 4096.0, True, "bytes written to storage"),
    ("checkpoint_write_bytes", "storage", "bytes", "counter", "log", 4096.0, True, "bytes written to checkpoints"),
    ("major_faults", "host", "count", "counter", "log", 1.0, True, "page faults that needed I/O"),
    ("rss_bytes", "host", "bytes", "gauge", "log", 1048576.0, True, "resident memory"),
    ("worker_cpu_seconds", "python", "seconds", "counter", "log", 1e-2, True, "CPU time of the rank's child processes"),
    ("worker_io_wait_seconds", "storage", "seconds", "counter", "log", 1e-3, True, "I/O wait of the rank's child processes"),
    ("stopped_ratio", "host", "ratio", "sign", "linear", 0.05, False, "share of the window's readings with the process stopped"),
    ("exited", "host", "count", "sign", "linear", 1.0, False, "1 in the window in which the process ended"),
    ("exit_code", "host", "code", "sign", "linear", 1.0, False, "exit code, or minus the signal's number"),
    ("oom_kills", "host", "count", "sign", "linear", 1.0, False, "kills by the kernel for want of memory"),
    ("lost_events", "telemetry", "count", "sign", "linear", 1.0, False, "events that the producer knows it missed"),
)  # fmt: skip

#: name -> feature, in the order of the columns of every frame
CATALOGUE: dict[str, Feature] = {row[0]: Feature(*row) for row in _TABLE}
_ORDER = {name: index for index, name in enumerate(CATALOGUE)}


def feature(name: str) -> Feature:
    """Return a feature's entry; an unknown name is a scored linear gauge of layer ``other``.

    >>> feature("net_rtt_seconds").unit, feature("my_own_metric").layer
    ('seconds', 'other')
    """
    return CATALOGUE.get(name) or Feature(name, "other", "", "gauge", "linear", 1e-9)


def column_order(name: str) -> tuple[int, str]:
    """Return the key by which columns are sorted: the catalogue's order, then other names by alphabet."""
    return (_ORDER.get(name, len(_ORDER)), name)
