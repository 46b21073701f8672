"""TCP of one process, by the peer's address: what the programs' totals grew by in an interval."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eacgm.events import IntArray
from eacgm.producers.observation import PeerColumns

#: peers told by name in one message; the rest are told together, without a name
MAX_PEERS = 64
_IPV4, _IPV6 = 2, 10


@lru_cache(maxsize=4096)
def address_text(family: int, address: bytes) -> str:
    """Return an address of 16 bytes as text: IPv4 where it is one, also within IPv6; "" for other families.

    >>> address_text(2, bytes([10, 0, 0, 7]) + bytes(12)), address_text(10, bytes(10) + bytes([255, 255, 10, 0, 0, 7]))
    ('10.0.0.7', '10.0.0.7')
    """
    if family == _IPV4:
        return str(ipaddress.IPv4Address(address[:4]))
    if family == _IPV6:
        inner = ipaddress.IPv6Address(address)
        return str(inner.ipv4_mapped or inner)
    return ""


@dataclass(slots=True)
class LinkAccount:
    """One process's totals by peer: sent, received, retransmits, sum of round-trip times (us), their count."""

    totals: dict[str, IntArray] = field(default_factory=dict)

    def collect(
        self, keys: NDArray[Any], links: NDArray[Any], total: tuple[float, float, float]
    ) -> tuple[PeerColumns, float | None]:
        """Return the interval's rows, and the mean round-trip time (s) over all segments that came in, None if none.

        ``keys`` and ``links`` are the process's entries of the map ``links``; ``total`` is by how much the process's
        bytes sent, bytes received and retransmits grew.
        """
        growth = self._grow(keys, links)
        segments = sum(int(row[4]) for row in growth.values())
        rtt = sum(int(row[3]) for row in growth.values()) * 1e-6 / segments if segments else None
        rows = sorted(growth.items(), key=lambda item: (-int(item[1][:2].sum()), item[0]))
        named = [(address, row) for address, row in rows if address and row.any()][:MAX_PEERS]
        told = np.array([row[:3] for _, row in named], dtype=np.int64).reshape(len(named), 3)
        others = np.maximum(np.array(total, dtype=np.int64) - told.sum(axis=0), 0)
        times = [row[3] * 1e-6 / row[4] if row[4] else np.nan for _, row in named]
        names = [address for address, _ in named]
        if others.any():
            told, names, times = np.vstack((told, others)), [*names, ""], [*times, np.nan]
        columns = PeerColumns(
            peer_address=names,
            peer_sent_bytes=told[:, 0],
            peer_received_bytes=told[:, 1],
            peer_retransmits=told[:, 2],
            peer_rtt_seconds=np.array(times, dtype=np.float64),
        )
        return columns, rtt

    def _grow(self, keys: NDArray[Any], links: NDArray[Any]) -> dict[str, IntArray]:
        now: dict[str, IntArray] = {}
        for key, link in zip(keys, links, strict=True):
            name = address_text(int(key["family"]), key["address"].tobytes())
            row = np.array(link.tolist(), dtype=np.int64)
            now[name] = now[name] + row if name in now else row
        growth: dict[str, IntArray] = {}
        for name, row in now.items():
            before = self.totals.get(name)
            # smaller than before: the kernel had dropped a link that was idle for long, and began it anew
            growth[name] = row if before is None or (row < before).any() else row - before
        self.totals = now
        return growth
