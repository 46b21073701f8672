"""One reading of all maps, and each watched process's part of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eacgm.events import IntArray
from eacgm.producers import maps
from eacgm.producers.accounts import CallAccount, CollectiveAccount, HostAccount
from eacgm.producers.call_errors import ErrorAccount
from eacgm.producers.clock import ClockReading
from eacgm.producers.observation import Observation
from eacgm.producers.probe import RECORD_BIT
from eacgm.producers.traffic import LinkAccount


@dataclass(slots=True)
class Watched:
    """What is kept for one watched process."""

    pid: int
    pidfd: int
    start_ns: int
    host: HostAccount
    calls: CallAccount
    collectives: CollectiveAccount
    errors: ErrorAccount
    links: LinkAccount = field(default_factory=LinkAccount)
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All maps as read for one interval, the dicts by pid, the arrays by the columns of ``eacgm.producers.maps``."""

    interval: int
    clock: ClockReading
    tids: NDArray[Any]
    threads: NDArray[Any]
    times: IntArray
    departed: dict[int, Any]
    open_keys: NDArray[Any]
    open_calls: NDArray[Any]
    row_keys: NDArray[Any]
    rows: NDArray[Any]
    error_keys: NDArray[Any]
    errors: NDArray[Any]
    memories: dict[int, Any]
    traffic: dict[int, Any]
    link_keys: NDArray[Any]
    links: NDArray[Any]
    processes: dict[int, Any]
    records: NDArray[Any]


def observe(watched: Watched, seen: Snapshot, end_ns: int) -> Observation:
    """Take one process's part out of what was read, and end its interval."""
    pid, process = watched.pid, seen.processes.get(watched.pid)
    mine, row_mine, open_mine = seen.threads["tgid"] == pid, seen.row_keys["tgid"] == pid, seen.open_keys["tgid"] == pid
    is_record = open_mine & (seen.open_keys["cookie"] >> np.uint64(RECORD_BIT) & np.uint64(1) == 1)
    lost = int(process["lost"]) if process is not None else watched.lost
    host = watched.host.collect(
        seen.tids[mine],
        seen.times[mine],
        seen.threads["state"][mine].astype(np.int64),
        _row(seen.departed.get(pid), "time_ns", maps.N_TIMES),
        int(process["step_tid"]) if process is not None else 0,
        np.array(seen.traffic[pid].tolist() if pid in seen.traffic else (0, 0, 0), dtype=np.int64),
    )
    link_mine = seen.link_keys["tgid"] == pid
    moved = (host.net_sent_bytes or 0, host.net_received_bytes or 0, host.net_retransmits or 0)
    peers, host.net_rtt_seconds = watched.links.collect(seen.link_keys[link_mine], seen.links[link_mine], moved)
    ages_ns = seen.clock.monotonic_ns - seen.open_calls["start_ns"][open_mine].astype(np.int64)
    calls = watched.calls.collect(
        seen.row_keys["function"][row_mine].astype(np.int64),
        seen.rows[row_mine],
        seen.interval,
        seen.open_calls["function"][open_mine].astype(np.int64),
        np.maximum(ages_ns, 0),
    )
    error_mine = seen.error_keys["tgid"] == pid
    watched.errors.collect(seen.error_keys[error_mine], seen.errors[error_mine], calls)
    records = seen.records[seen.records["tgid"] == pid]
    collectives = watched.collectives.collect(records, seen.open_calls[is_record], seen.clock.offset_ns)
    start_ns, end_ns = watched.start_ns, max(end_ns, watched.start_ns)
    lost_now, watched.lost, watched.start_ns = lost - watched.lost, lost, end_ns
    return Observation(
        pid=pid,
        start_ns=start_ns,
        end_ns=end_ns,
        lost=lost_now,
        calls=calls,
        collectives=collectives,
        host=host,
        cuda_allocated_bytes=_allocated_bytes(seen.memories.get(pid)),
        peers=peers,
    )


def _allocated_bytes(memory: Any) -> int | None:
    if memory is None or memory["forgotten"]:
        return None
    return max(int(memory["allocated_bytes"]) - int(memory["freed_bytes"]), 0)


def _row(value: Any, column: str, length: int) -> IntArray:
    if value is None:
        return np.zeros(length, dtype=np.int64)
    row: IntArray = value[column].astype(np.int64)
    return row
