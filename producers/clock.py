"""The clocks: what to add to CLOCK_MONOTONIC to get UTC, and how far UTC may be off."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass

_STA_UNSYNC = 0x0040
_ATTEMPTS = 5

_libc = ctypes.CDLL(None, use_errno=True)


class _Timex(ctypes.Structure):
    """struct timex, 64-bit (adjtimex(2))."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("rest", ctypes.c_long * 20),
    ]


@dataclass(frozen=True, slots=True)
class ClockReading:
    """One measurement: ``monotonic + offset_ns`` is UTC.

    ``error_ns`` bounds the clock's error against true UTC as the kernel's clock discipline knows it, None where the
    clock is not synchronised.
    """

    monotonic_ns: int
    offset_ns: int
    error_ns: int | None


def read() -> ClockReading:
    """Measure the offset: the tightest of a few readings of UTC between two of the monotonic clock."""
    best: tuple[int, int, int] | None = None
    for _ in range(_ATTEMPTS):
        before = time.monotonic_ns()
        utc = time.time_ns()
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            middle = before + (after - before) // 2
            best = (after - before, middle, utc - middle)
    assert best is not None
    return ClockReading(best[1], best[2], _error_ns())


def _error_ns() -> int | None:
    timex = _Timex()
    if _libc.adjtimex(ctypes.byref(timex)) < 0 or timex.status & _STA_UNSYNC:
        return None
    return int(timex.maxerror) * 1000
