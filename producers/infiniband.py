"""InfiniBand and RoCE ports of the node: whether each is up, and what its counters grew by.

Source: the kernel's Documentation/ABI/stable/sysfs-class-infiniband; the counters of ``hw_counters`` are the driver's
own, and devices have those that they have.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np

from eacgm.events import FloatArray, IntArray, no_floats, no_ints
from eacgm.producers.observation import Columns
from eacgm.producers.procfs import grown, read_file

#: port_xmit_data and port_rcv_data count in words of four bytes
_WORD_BYTES = 4
_SENT, _RECEIVED, _LINK_DOWNS = "counters/port_xmit_data", "counters/port_rcv_data", "counters/link_downed"
_ERRORS = (
    "counters/symbol_error",
    "counters/link_error_recovery",
    "counters/port_rcv_errors",
    "counters/port_xmit_discards",
    "counters/local_link_integrity_errors",
    "counters/excessive_buffer_overrun_errors",
)
#: what makes a sender send again: a lost or reordered packet, an acknowledgement that did not come
_RETRANSMITS = ("hw_counters/packet_seq_err", "hw_counters/local_ack_timeout_err")


@dataclass(slots=True, kw_only=True, eq=False)
class PortColumns(Columns):
    """A row for each port; the columns are those of ``HostEvent``."""

    port_name: list[str] = field(default_factory=list)
    port_active: IntArray = field(default_factory=no_ints)
    port_sent_bytes: FloatArray = field(default_factory=no_floats)
    port_received_bytes: FloatArray = field(default_factory=no_floats)
    port_errors: FloatArray = field(default_factory=no_floats)
    port_retransmits: FloatArray = field(default_factory=no_floats)
    port_link_downs: FloatArray = field(default_factory=no_floats)


class PortReader:
    """Remembers each port's counters and tells by how much they grew."""

    def __init__(self, root: str) -> None:
        self._folder = f"{root}/sys/class/infiniband"
        self._before: dict[str, float | None] = {}

    def read(self) -> PortColumns:
        """Return the ports' rows by name; growths are NaN without an earlier reading or without the counter."""
        now: dict[str, float | None] = {}
        names = [f"{device}/{port}" for device in _names(self._folder) for port in _names(self._ports(device))]
        active, rows = [], []
        for name in names:
            folder = self._ports(name.partition("/")[0]) + "/" + name.partition("/")[2]
            state = read_file(f"{folder}/state") or b""
            active.append(int(state.strip().endswith(b"ACTIVE")))
            rows.append([self._growth(folder, counters, now) for counters in _COLUMNS])
        self._before = now
        values = np.array(rows, dtype=np.float64).reshape(len(names), len(_COLUMNS))
        return PortColumns(
            port_name=names,
            port_active=np.array(active, dtype=np.int64),
            port_sent_bytes=values[:, 0] * _WORD_BYTES,
            port_received_bytes=values[:, 1] * _WORD_BYTES,
            port_errors=values[:, 2],
            port_retransmits=values[:, 3],
            port_link_downs=values[:, 4],
        )

    def _ports(self, device: str) -> str:
        return f"{self._folder}/{device}/ports"

    def _growth(self, folder: str, counters: tuple[str, ...], now: dict[str, float | None]) -> float:
        """Return the growth of the sum of those counters that the device has."""
        known = []
        for counter in counters:
            path = f"{folder}/{counter}"
            text = (read_file(path) or b"").strip()
            # some devices write "N/A (no PMA)"
            now[path] = float(text) if text.isdigit() else None
            growth = grown(now[path], self._before.get(path))
            if growth is not None:
                known.append(growth)
        return sum(known) if known else np.nan


_COLUMNS = ((_SENT,), (_RECEIVED,), _ERRORS, _RETRANSMITS, (_LINK_DOWNS,))


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
