"""A BPF ring buffer read through numpy: records of one fixed size, a whole interval at a time.

Source: Documentation/bpf/ringbuf.rst: a page with the consumer's position, one with the producer's, then the data
mapped twice over, so that a record never wraps. Each record is preceded by 8 bytes: its length with two flag bits,
and a page offset.
"""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

from eacgm.errors import ProbeError
from eacgm.producers import kernel

_BUSY = 1 << 31
_DISCARDED = 1 << 30


class Ring:
    """The records of one ring, in the order in which they were reserved.

    ``record`` is the records' dtype, its size a multiple of 8 bytes. Raises ``ProbeError`` where the kernel's records
    have another size.
    """

    def __init__(self, fd: int, record: np.dtype[np.void]) -> None:
        self._size = kernel.map_shape(fd)[2]
        self._record = record
        self._slot = np.dtype([("header", "<u4"), ("page", "<u4"), ("record", record)])
        self._consumer_page = mmap.mmap(fd, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        length = mmap.PAGESIZE + 2 * self._size
        self._pages = mmap.mmap(fd, length, mmap.MAP_SHARED, mmap.PROT_READ, offset=mmap.PAGESIZE)
        self._consumed = np.frombuffer(self._consumer_page, dtype="<u8", count=1)
        self._produced = np.frombuffer(self._pages, dtype="<u8", count=1)

    def drain(self) -> NDArray[np.void]:
        """Return all finished records, shape ``(n_records,)``, and free their room."""
        consumed = int(self._consumed[0])
        waiting = (int(self._produced[0]) - consumed) // self._slot.itemsize
        start = mmap.PAGESIZE + (consumed & (self._size - 1))
        slots = np.frombuffer(self._pages, dtype=self._slot, count=waiting, offset=start)
        headers = slots["header"].copy()
        busy = np.flatnonzero(headers & _BUSY)
        finished = int(busy[0]) if busy.size else waiting
        headers = headers[:finished]
        if (headers & ~np.uint32(_DISCARDED) != self._record.itemsize).any():
            raise ProbeError(
                f"a ring holds records of another size than {self._record.itemsize} bytes; reinstall eacgm"
            )
        records: NDArray[np.void] = slots["record"][:finished][headers & _DISCARDED == 0].copy()
        self._consumed[0] = consumed + finished * self._slot.itemsize
        return records

    def close(self) -> None:
        """Unmap the ring."""
        del self._consumed, self._produced
        self._consumer_page.close()
        self._pages.close()
