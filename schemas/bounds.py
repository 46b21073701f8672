"""What a message from outside may say: numbers that the pipeline can still calculate with.

Whoever decodes is the first to see a foreign message, and the only one who can still refuse it. Beyond these bounds,
which no reading comes near, sums overflow and squares are infinite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from eacgm.errors import DecodeError
from eacgm.events import EVENT_OF_TOPIC, FloatArray, GpuEvent, HostEvent

#: 2200-01-01 (UTC ns); event time begins in 1970, because tables may start at 0
MAX_TIME_NS = 7_258_118_400_000_000_000
#: of whole numbers, such as nanoseconds of a call (two years) and bytes (72 PB): a hundred of them can be added
MAX_WHOLE = 2**56
#: of readings; larger ones were not read
MAX_READING = 1e30

_TIMES = ("start_ns", "end_ns", "published_ns")
_TIME_COLUMNS = frozenset({"call_start_ns", "call_end_ns", "open_call_start_ns"})
#: fields of events that hold one whole number each
WHOLE = ("lost", "clock_error_ns", "incarnation", "sequence", "exit_code", "pid", "cuda_allocated_bytes")


def check_head(record: Mapping[str, Any]) -> None:
    """Raise ``DecodeError`` for times outside 1970-2200 and for counts out of bounds."""
    for name in _TIMES:
        value = record.get(name, 0)
        if not 0 <= value <= MAX_TIME_NS:
            raise DecodeError(f"{name} is {value}; expected UTC nanoseconds between 1970 and 2200")
    for name in WHOLE:
        value = record.get(name)
        if value is not None and not -MAX_WHOLE <= value <= MAX_WHOLE:
            raise DecodeError(f"{name} is {value}; expected at most {MAX_WHOLE} in size")


def check_whole(name: str, column: Sequence[int]) -> None:
    """Raise ``DecodeError`` where a column of whole numbers holds one out of bounds."""
    if not column:
        return
    low, high = whole_range(name)
    least, most = min(column), max(column)
    if least < low or most > high:
        raise DecodeError(f"{name} holds {least if least < low else most}; expected {low} to {high}")


def whole_range(name: str) -> tuple[int, int]:
    """Return the least and the greatest number that a column of whole numbers may hold."""
    return (0, MAX_TIME_NS) if name in _TIME_COLUMNS else (-MAX_WHOLE, MAX_WHOLE)


def readings(column: FloatArray) -> FloatArray:
    """Return a column of readings with NaN for what is none: infinite, or beyond ``MAX_READING``."""
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(column) <= MAX_READING, column, np.nan)


@cache
def reading_names(topic: str) -> tuple[str, ...]:
    """Return the fields of a topic that hold one reading each, or None."""
    kind = EVENT_OF_TOPIC[topic]
    if kind not in (HostEvent, GpuEvent):
        return ()
    return tuple(name for name, field in kind.__dataclass_fields__.items() if field.type == "float | None")


def without_impossible(topic: str, record: dict[str, Any]) -> None:
    """Put None in the place of readings that are none: NaN, infinite, or beyond ``MAX_READING``."""
    for name in reading_names(topic):
        value = record.get(name)
        if value is not None and not -MAX_READING <= value <= MAX_READING:
            record[name] = None
