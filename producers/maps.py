"""The programs' maps as numpy sees them: one dtype for each C structure of ``bpf/``, and whole maps read at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eacgm.errors import ProbeError
from eacgm.producers import kernel

N_TIMES, N_BUCKETS, N_FAMILIES = 8, 44, 2
RUNNING, RUNNABLE, SLEEPING, UNINTERRUPTIBLE, STOPPED, BLOCKED = range(6)

PROCESS = np.dtype([("step_tid", "<u8"), ("step_sp", "<u8"), ("lost", "<u8")])
THREAD = np.dtype(
    [
        ("since_ns", "<u8"),
        ("time_ns", "<u8", N_TIMES),
        ("outer_sp", "<u8"),
        ("settled_ns", "<u8"),
        ("family_sp", "<u8", N_FAMILIES),
        ("sheddings", "<u8"),
        ("tgid", "<u4"),
        ("state", "<u4"),
    ]
)
DEPARTED = np.dtype([("time_ns", "<u8", N_TIMES)])
CALL_KEY = np.dtype([("tid", "<u4"), ("tgid", "<u4"), ("sp", "<u8"), ("cookie", "<u8")])
OPEN_CALL = np.dtype(
    [
        ("start_ns", "<u8"),
        ("bytes", "<i8"),
        ("communicator", "<u8"),
        ("sequence", "<u8"),
        ("function", "<u8"),
        ("place", "<u8"),
    ]
)
ROW_KEY = np.dtype([("tgid", "<u4"), ("function", "<u4")])
#: ``sums`` are count, errors, bytes, total_ns
ROW = np.dtype([("sums", "<u8", 4), ("max_ns", "<u8", 2), ("max_interval", "<u8", 2), ("histogram", "<u8", N_BUCKETS)])
GROUP_KEY = np.dtype([("tgid", "<u8"), ("communicator", "<u8")])
#: ``name`` has the bit ``COMMUNICATOR_NAMED``
COMMUNICATOR = np.dtype([("name", "<u8"), ("children", "<u8"), ("rank", "<i4"), ("size", "<i4")])
COMMUNICATOR_NAMED = 1 << 63
ERROR_KEY = np.dtype([("tgid", "<u4"), ("function", "<u4"), ("code", "<i4"), ("unused", "<u4")])
ALLOCATION_KEY = np.dtype([("tgid", "<u8"), ("at", "<u8")])
MEMORY = np.dtype([("allocated_bytes", "<u8"), ("freed_bytes", "<u8"), ("forgotten", "<u8")])
TRAFFIC = np.dtype([("sent_bytes", "<u8"), ("received_bytes", "<u8"), ("retransmits", "<u8")])
PEER = np.dtype([("tgid", "<u4"), ("family", "<u4"), ("address", "u1", 16)])
LINK = np.dtype(
    [
        ("sent_bytes", "<u8"),
        ("received_bytes", "<u8"),
        ("retransmits", "<u8"),
        ("rtt_sum_us", "<u8"),
        ("rtt_count", "<u8"),
    ]
)
RECORD = np.dtype(
    [
        ("start_ns", "<u8"),
        ("end_ns", "<u8"),
        ("communicator", "<u8"),
        ("sequence", "<u8"),
        ("bytes", "<i8"),
        ("return_code", "<i4"),
        ("tgid", "<u4"),
        ("tid", "<u4"),
        ("function", "<u4"),
    ]
)
LIFECYCLE = np.dtype([("time_ns", "<u8"), ("kind", "<u4"), ("pid", "<u4"), ("parent", "<u4"), ("unused", "<u4")])
NUMBER = np.dtype("<u4")
COUNTER = np.dtype("<u8")

_LAYOUT: dict[str, tuple[np.dtype[Any], np.dtype[Any]]] = {
    "processes": (NUMBER, PROCESS),
    "threads": (NUMBER, THREAD),
    "departed": (NUMBER, DEPARTED),
    "node_counters": (NUMBER, COUNTER),
    "interval": (NUMBER, COUNTER),
    "sheddings": (NUMBER, COUNTER),
    "open_calls": (CALL_KEY, OPEN_CALL),
    "rows": (ROW_KEY, ROW),
    "sequences": (GROUP_KEY, COUNTER),
    "communicators": (GROUP_KEY, COMMUNICATOR),
    "error_codes": (ERROR_KEY, COUNTER),
    "allocations": (ALLOCATION_KEY, COUNTER),
    "memories": (NUMBER, MEMORY),
    "traffic": (NUMBER, TRAFFIC),
    "links": (PEER, LINK),
}


class KernelMap:
    """One map of the loaded programs, by its name in ``bpf/``.

    Raises ``ProbeError`` where the kernel's map has other sizes than the dtypes here.
    """

    def __init__(self, name: str, fd: int) -> None:
        self._fd = fd
        self._key, self._value = _LAYOUT[name]
        key_bytes, value_bytes, capacity = kernel.map_shape(fd)
        if (key_bytes, value_bytes) != (self._key.itemsize, self._value.itemsize):
            ours = f"{self._key.itemsize} and {self._value.itemsize}"
            raise ProbeError(
                f"map {name} has {key_bytes}- and {value_bytes}-byte entries; expected {ours}; reinstall eacgm"
            )
        self._keys = np.zeros(capacity, dtype=self._key)
        self._values = np.zeros(capacity, dtype=self._value)

    def read(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return all keys and values; the arrays are valid until the next ``read``."""
        count = kernel.map_lookup_batch(self._fd, self._keys, self._values)
        return self._keys[:count], self._values[:count]

    def get(self, key: Any) -> NDArray[Any] | None:
        """Return one value as an array of one element, None if there is none."""
        value = np.zeros(1, dtype=self._value)
        return value if kernel.map_lookup(self._fd, self._as_key(key), value) else None

    def put(self, key: Any, value: Any, *, only_new: bool = False) -> None:
        """Write one entry; with ``only_new`` an existing one stays. Raises ``ProbeError`` if the map is full."""
        try:
            flags = kernel.BPF_NOEXIST if only_new else 0
            kernel.map_update(self._fd, self._as_key(key), np.array([value], dtype=self._value), flags)
        except FileExistsError:
            return
        except OSError as error:
            raise ProbeError(f"a map of the programs took no entry ({error.strerror}); watch fewer processes") from None

    def delete(self, key: Any) -> bool:
        """Remove one entry; False if there was none."""
        return kernel.map_delete(self._fd, self._as_key(key))

    def _as_key(self, key: Any) -> NDArray[Any]:
        return np.array([key], dtype=self._key)
