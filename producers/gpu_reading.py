"""What one GPU showed at one moment, and what happened between two such moments. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from eacgm.producers.xids import Address

Number = float | int | None


@dataclass(frozen=True, slots=True)
class OnGpu:
    """One process on a GPU; None what NVML does not tell. ``sm_ratio`` is 0-1."""

    memory_bytes: int | None
    sm_ratio: float | None


@dataclass(slots=True)
class GpuReading:
    """One round's reading of a GPU, or of one MIG instance, whose ``index`` and board readings are its GPU's.

    ``taken_ns`` is CLOCK_MONOTONIC; ``gauges`` are named as in ``GpuEvent``; ``totals`` are counters since whenever, by
    the names that their growth has there; ``rates`` stand in, per second, where there is no counter. ``processes`` (by
    host pid) is None where NVML does not tell.
    """

    uuid: str
    index: int | None
    address: Address | None
    taken_ns: int
    lost: bool = False
    gauges: dict[str, Number] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    processes: dict[int, OnGpu] | None = None

    @property
    def board(self) -> str:
        """The name of the device that the reading belongs to: MIG instances share it."""
        return board_name(self.address, self.uuid)


def board_name(address: Address | None, uuid: str) -> str:
    """Return the name by which a device is known to NVML and the kernel log alike: its place on the bus, if known."""
    if address is None:
        return uuid
    domain, bus, device = address
    return f"PCI:{domain:04x}:{bus:02x}:{device:02x}"


def growth(now: GpuReading, before: GpuReading | None) -> dict[str, float | None]:
    """Return what the counters grew by between two readings; None without an earlier one, and where one went back."""
    if before is None:
        return {}
    grown: dict[str, float | None] = {}
    for name, total in now.totals.items():
        earlier = before.totals.get(name)
        # one that went back was reset with its device, or wrapped: nobody knows by how much it grew
        grown[name] = total - earlier if earlier is not None and total >= earlier else None
    seconds = (now.taken_ns - before.taken_ns) * 1e-9
    return grown | {name: rate * seconds for name, rate in now.rates.items()}


def home_gpus(pid: int, readings: list[GpuReading]) -> list[str]:
    """Return the GPUs that a process works on: a small context on a neighbour's GPU does not count.

    Those on which it holds a quarter or more of what it holds on the one where it holds most; all, if memory is not
    told. In the order of ``readings``.
    """
    held: dict[str, int | None] = {}
    for reading in readings:
        if reading.processes is not None and pid in reading.processes:
            held[reading.uuid] = reading.processes[pid].memory_bytes
    most = max((memory for memory in held.values() if memory is not None), default=0)
    return [uuid for uuid, memory in held.items() if memory is None or 4 * memory >= most]
