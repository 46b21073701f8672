"""What /proc tells of the whole node: load, pressure, stolen time, memory, kills for want of memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

from eacgm.producers.procfs import TICKS_PER_SECOND, grown, read_file

_PRESSURE = re.compile(rb"^some .*\btotal=(\d+)", re.MULTILINE)
_AVAILABLE = re.compile(rb"^MemAvailable:\s+(\d+) kB", re.MULTILINE)
_OOM_KILLS = re.compile(rb"^oom_kill (\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NodeReading:
    """One node's counters since boot and its gauges now; what the kernel does not tell is None.

    ``*_stalled_seconds`` is pressure stall information: time in which at least one task waited for the resource.
    """

    load: float | None
    memory_available_bytes: float | None
    steal_seconds: float | None
    oom_kills: float | None
    cpu_stalled_seconds: float | None
    io_stalled_seconds: float | None
    memory_stalled_seconds: float | None


def read_node(root: str) -> NodeReading:
    """Return the node's readings from the /proc below ``root``."""
    load = (read_file(f"{root}/proc/loadavg") or b"").split()
    available_kib = _number(root, "meminfo", _AVAILABLE)
    cpu = (read_file(f"{root}/proc/stat") or b"").partition(b"\n")[0].split()
    return NodeReading(
        load=float(load[0]) if load else None,
        memory_available_bytes=None if available_kib is None else available_kib * 1024,
        # "cpu user nice system idle iowait irq softirq steal ..."
        steal_seconds=int(cpu[8]) / TICKS_PER_SECOND if len(cpu) > 8 and cpu[0] == b"cpu" else None,
        oom_kills=_number(root, "vmstat", _OOM_KILLS),
        cpu_stalled_seconds=_stalled_seconds(root, "cpu"),
        io_stalled_seconds=_stalled_seconds(root, "io"),
        memory_stalled_seconds=_stalled_seconds(root, "memory"),
    )


def _number(root: str, name: str, pattern: re.Pattern[bytes]) -> float | None:
    match = pattern.search(read_file(f"{root}/proc/{name}") or b"")
    return float(match[1]) if match else None


def _stalled_seconds(root: str, resource: str) -> float | None:
    # absent without CONFIG_PSI, "Operation not supported" when booted with psi=0
    total_us = _number(root, f"pressure/{resource}", _PRESSURE)
    return None if total_us is None else total_us / 1e6


def node_changes(now: NodeReading, before: NodeReading | None, elapsed_seconds: float) -> dict[str, float | None]:
    """Return what happened on the node between two readings, by the names of ``HostEvent``.

    Pressures are shares of the elapsed time (0-1). Counters without an earlier reading are None.
    """

    def pressure(name: str) -> float | None:
        growth = grown(getattr(now, name), getattr(before, name) if before else None)
        return None if growth is None or elapsed_seconds <= 0 else min(1.0, growth / elapsed_seconds)

    return {
        "load": now.load,
        "memory_available_bytes": now.memory_available_bytes,
        "cpu_steal_seconds": grown(now.steal_seconds, before.steal_seconds if before else None),
        "oom_kills": grown(now.oom_kills, before.oom_kills if before else None),
        "cpu_pressure_ratio": pressure("cpu_stalled_seconds"),
        "io_pressure_ratio": pressure("io_stalled_seconds"),
        "memory_pressure_ratio": pressure("memory_stalled_seconds"),
    }
