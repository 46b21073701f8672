"""XIDs, the driver's error codes: read from the kernel log's lines, told once although two witnesses see them. Pure.

NVML's event set and the kernel log may both tell of one error, a moment apart, and each may miss some: of the two
counts the larger holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_LINE = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.\d)?\): (\d{1,4})\b(.*)", re.I
)
_NONFATAL = re.compile(r"\bnon-?fatal\b", re.I)
_REGISTER = re.compile(r"\((0x[0-9a-f]{1,8})\b", re.I)
#: NVLink5's codes: their line says whether they are fatal; bits 20 to 25 of its first register are a sub-code
NVLINK5_XIDS = range(144, 151)
#: a device's XIDs told in one interval; more are only counted
MAX_XIDS = 64
#: the two witnesses of one error are this far apart at most
_MEETING_NS = 10_000_000_000

#: PCI domain, bus, device
Address = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Xid:
    """One error: ``nonfatal`` where the driver says so; ``subcode`` None where the line carries none."""

    code: int
    nonfatal: bool = False
    subcode: int | None = None


@dataclass(slots=True)
class DeviceXids:
    """What one GPU logged in an interval; ``beyond`` counts errors for which there was no room."""

    told: list[Xid] = field(default_factory=list)
    beyond: int = 0

    @property
    def fatal(self) -> list[int]:
        """The codes of those that the driver did not call nonfatal, in order."""
        return [xid.code for xid in self.told if not xid.nonfatal]

    @property
    def nonfatal(self) -> list[int]:
        """The codes of those that the driver called nonfatal, in order."""
        return [xid.code for xid in self.told if xid.nonfatal]

    @property
    def subcodes(self) -> list[str]:
        """``XID.sub-code`` of those that carry one, in order."""
        return [f"{xid.code}.{xid.subcode}" for xid in self.told if xid.subcode is not None]


def parse_xid(message: str) -> tuple[Address, Xid] | None:
    """Return whose and which error a kernel message tells of, None if it is another message.

    >>> parse_xid("NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.")
    ((0, 59, 0), Xid(code=79, nonfatal=False, subcode=None))
    """
    found = _LINE.match(message)
    if found is None:
        return None
    domain, bus, device = (int(part, 16) for part in found.groups()[:3])
    code, rest = int(found[4]), found[5]
    if code not in NVLINK5_XIDS:
        return (domain, bus, device), Xid(code)
    register = _REGISTER.search(rest)
    subcode = None if register is None else int(register[1], 16) >> 20 & 0x3F
    return (domain, bus, device), Xid(code, _NONFATAL.search(rest) is not None, subcode)


@dataclass(slots=True)
class _Count:
    """How often each witness told of a code, how often it was passed on, and when something was last added."""

    kernel: int = 0
    nvml: int = 0
    told: int = 0
    changed_ns: int = 0


class XidLedger:
    """Puts both witnesses' errors together, by GPU (any name) and code; repeats are told as often as they happened."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], _Count] = {}

    def take(
        self, kernel: Iterable[tuple[str, Xid]], nvml: Iterable[tuple[str, int]], now_ns: int
    ) -> dict[str, DeviceXids]:
        """Return the interval's errors by GPU; ``now_ns`` is any clock's time that only grows."""
        found: dict[str, DeviceXids] = {}
        for key in [key for key, count in self._counts.items() if now_ns - count.changed_ns > _MEETING_NS]:
            del self._counts[key]
        for gpu, xid in kernel:
            count = self._count(gpu, xid.code, now_ns)
            count.kernel += 1
            if count.kernel > count.told:
                self._tell(found, gpu, xid, count)
        for gpu, code in nvml:
            count = self._count(gpu, code, now_ns)
            count.nvml += 1
            if count.nvml > count.told:
                self._tell(found, gpu, Xid(code), count)
        return found

    def _count(self, gpu: str, code: int, now_ns: int) -> _Count:
        count = self._counts.setdefault((gpu, code), _Count())
        count.changed_ns = now_ns
        return count

    def _tell(self, found: dict[str, DeviceXids], gpu: str, xid: Xid, count: _Count) -> None:
        count.told += 1
        device = found.setdefault(gpu, DeviceXids())
        if len(device.told) < MAX_XIDS:
            device.told.append(xid)
        else:
            device.beyond += 1
