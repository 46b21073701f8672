"""How fast what the kernel has gathered is read: a map of 50,000 entries, a ring full of collectives.

The map is one like that of calls in flight (24-byte keys, 40-byte values), read at once as the agent does; the ring is
filled by a traced C function in a loop, and emptied. The best of several rounds counts.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from eacgm.bench.probes import PROBES, build_library
from eacgm.errors import ProbeError
from eacgm.producers import kernel, maps
from eacgm.producers.tracer import Tracer

_ENTRIES = 50_000
_RECORDS = 200_000
#: 4096-byte pages: room for 233,000 records of 72 bytes
_RING_PAGES = 4096


def run(rounds: int = 20) -> list[dict[str, Any]]:
    """Return a row for the map and one for the ring: entries, milliseconds, million entries a second.

    Raises ``UnsupportedError`` without gcc or eBPF, ``ProbeError`` where something was lost on the way.
    """
    return [_row("map", _ENTRIES, _map_seconds(rounds)), _row("ring", _RECORDS, _ring_seconds(rounds))]


def _row(what: str, entries: int, seconds: float) -> dict[str, Any]:
    return {"read": what, "entries": entries, "ms": 1e3 * seconds, "million_per_second": entries / seconds / 1e6}


def _map_seconds(rounds: int) -> float:
    keys, values = np.zeros(_ENTRIES, dtype=maps.CALL_KEY), np.zeros(_ENTRIES, dtype=maps.OPEN_CALL)
    keys["tid"] = np.arange(_ENTRIES)
    fd = kernel.create_hash_map(keys.itemsize, values.itemsize, _ENTRIES)
    try:
        for index in range(_ENTRIES):
            kernel.map_update(fd, keys[index : index + 1], values[index : index + 1])
        times = []
        for _ in range(rounds):
            begun = time.perf_counter()
            count = kernel.map_lookup_batch(fd, keys, values)
            times.append(time.perf_counter() - begun)
            if count != _ENTRIES:
                raise ProbeError(f"{count} entries were read; expected {_ENTRIES}")
    finally:
        os.close(fd)
    return min(times)


def _ring_seconds(rounds: int) -> float:
    times = []
    with tempfile.TemporaryDirectory() as folder, Tracer(PROBES, record_pages=_RING_PAGES) as tracer:
        library = ctypes.CDLL(os.fspath(build_library(Path(folder))))
        library.loop_collective.restype = ctypes.c_double
        tracer.watch(os.getpid())
        for _ in range(rounds):
            library.loop_collective(_RECORDS)
            begun = time.perf_counter()
            records = tracer.records.drain()
            times.append(time.perf_counter() - begun)
            if len(records) != _RECORDS:
                raise ProbeError(f"{len(records)} records were read; expected {_RECORDS}")
    return min(times)
