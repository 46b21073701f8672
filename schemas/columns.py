"""Many messages of one topic to events at once, column by column: a fraction of the time that one by one takes.

The bodies are read into Arrow columns by compiled code; events are made of slices of them. What is refused one by one
is refused here too, but without saying which body it was: then the whole batch is read one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import cache, lru_cache
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import pyarrow as pa
from pyruhvro import deserialize_array

from eacgm.events import (
    EVENT_OF_TOPIC,
    BoolArray,
    CallsEvent,
    CollectivesEvent,
    Event,
    GpuEvent,
    HostEvent,
    SamplesEvent,
    no_floats,
    no_ints,
)
from eacgm.schemas import bounds
from eacgm.schemas.codec import COLUMNS
from eacgm.schemas.store import schema_of

#: topics whose messages are flat enough to be read by columns
TOPICS = frozenset(kind.topic for kind in (CallsEvent, CollectivesEvent, GpuEvent, HostEvent, SamplesEvent))
#: bodies read at a time, so that an event that is kept does not keep more than these
MOST_BODIES = 512


class _RefusedError(Exception):
    """A body among them cannot be an event."""


def read_columns(topic: str, bodies: Sequence[bytes]) -> list[Event] | None:
    """Return the events that Avro bodies of a topic's own schema hold, in order.

    None where one of them cannot be read, or the topic's messages cannot be read this way: read them one by one.
    Bytes that follow a body are not seen.
    """
    if topic not in TOPICS:
        return None
    out: list[Event] = []
    try:
        for begin in range(0, len(bodies), MOST_BODIES):
            out += _read(topic, list(bodies[begin : begin + MOST_BODIES]))
    except (_RefusedError, ValueError, pa.ArrowException):
        return None
    return out


def _read(topic: str, bodies: list[bytes]) -> list[Event]:
    kind = EVENT_OF_TOPIC[topic]
    batch = deserialize_array(bodies, schema_of(topic).text)
    columns = {name: batch.column(name) for name in batch.schema.names}
    _check_head(columns)
    for names in COLUMNS.get(kind, ()):
        first, *others = (np.diff(columns[name].offsets.to_numpy()) for name in names)
        if not all(np.array_equal(first, other) for other in others):
            raise _RefusedError
    events: list[Event] = list(map(object.__new__, repeat(kind, len(bodies))))
    for name, read in _readers(topic).items():
        # one loop in C a field: an event's own __init__ would take five times as long
        deque(map(getattr(kind, name).__set__, events, read(name, columns[name])), maxlen=0)
    return events


def _check_head(columns: dict[str, Any]) -> None:
    numbers = {name: columns[name].to_numpy() for name in ("start_ns", "end_ns", "published_ns")}
    for number in numbers.values():
        _within(number, 0, bounds.MAX_TIME_NS)
    if (numbers["end_ns"] < numbers["start_ns"]).any():
        raise _RefusedError
    for name in bounds.WHOLE:
        if name in columns:
            _within(columns[name].drop_null().to_numpy(), -bounds.MAX_WHOLE, bounds.MAX_WHOLE)


def _within(numbers: Any, low: int, high: int) -> None:
    if numbers.size and (numbers.min() < low or numbers.max() > high):
        raise _RefusedError


@cache
def _readers(topic: str) -> dict[str, Callable[[str, Any], Iterable[Any]]]:
    """Return for each field of a topic's events how its column becomes one value an event."""
    readings = frozenset(bounds.reading_names(topic))
    by_type = {
        "IntArray": _whole_arrays,
        "FloatArray": _reading_arrays if topic == SamplesEvent.topic else _real_arrays,
        "list[str]": _word_lists,
        "list[int]": _whole_lists,
        "str": _words,
    }
    kind = EVENT_OF_TOPIC[topic]
    return {f.name: _readings if f.name in readings else by_type.get(str(f.type), _scalars) for f in fields(kind)}


def _scalars(_: str, column: Any) -> Iterable[Any]:
    """Return numbers or truth values, None where there is none."""
    if column.null_count == len(column):
        return repeat(None)
    if not column.null_count:
        return list(column.to_numpy(zero_copy_only=False).tolist())
    filled = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    values: list[Any] = filled.to_numpy(zero_copy_only=False).tolist()
    return _without(values, column.is_null().to_numpy(zero_copy_only=False))


def _readings(_: str, column: Any) -> Iterable[float | None]:
    """Return readings, None where there is none or what stands there is none."""
    if column.null_count == len(column):
        return repeat(None)
    numbers = column.to_numpy(zero_copy_only=False)  # NaN for null
    with np.errstate(invalid="ignore"):
        possible = np.abs(numbers) <= bounds.MAX_READING
    return _without(numbers.tolist(), ~possible)


def _without(values: list[Any], absent: BoolArray) -> list[Any]:
    for row in np.flatnonzero(absent).tolist():
        values[row] = None
    return values


def _words(_: str, column: Any) -> Iterable[str | None]:
    """Return words, equal ones as the same object."""
    coded = column.dictionary_encode()
    known = coded.dictionary.to_pylist()
    if coded.null_count:
        return [None if code is None else known[code] for code in coded.indices.to_pylist()]
    return repeat(known[0]) if len(known) == 1 else map(known.__getitem__, coded.indices.to_numpy().tolist())


def _arrays(column: Any, dtype: type) -> tuple[Any, list[slice]]:
    """Return the numbers of a column of arrays, and which of them each array holds."""
    numbers = column.values.to_numpy(zero_copy_only=False).astype(dtype, copy=False)
    return numbers, _places(column.offsets.to_numpy().tobytes())


@lru_cache(maxsize=4)
def _places(ends: bytes) -> list[slice]:
    """Return the slices between ends (32-bit integers); columns of the same rows share them."""
    numbers = np.frombuffer(ends, dtype=np.int32).tolist()
    return list(map(slice, numbers, numbers[1:]))


def _whole_arrays(name: str, column: Any) -> Iterable[Any]:
    numbers, places = _arrays(column, np.int64)
    if not numbers.size:
        return repeat(no_ints())
    _within(numbers, *bounds.whole_range(name))
    return map(numbers.__getitem__, places)


def _real_arrays(_: str, column: Any) -> Iterable[Any]:
    numbers, places = _arrays(column, np.float64)
    return map(numbers.__getitem__, places) if numbers.size else repeat(no_floats())


def _reading_arrays(_: str, column: Any) -> Iterable[Any]:
    numbers, places = _arrays(column, np.float64)
    return map(bounds.readings(numbers).__getitem__, places)


def _whole_lists(_: str, column: Any) -> Iterable[list[int]]:
    numbers, places = _arrays(column, np.int64)
    return map(numbers.tolist().__getitem__, places)


def _word_lists(_: str, column: Any) -> Iterable[list[str]]:
    """Return lists of words, equal ones as the same object: processes call the same functions again and again."""
    coded = column.values.dictionary_encode()
    known, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    ends = (column.offsets.to_numpy() * codes.itemsize).tolist()
    packed = codes.tobytes()
    lists: dict[bytes, list[str]] = {}
    out = []
    for begin, end in pairwise(ends):
        key = packed[begin:end]
        words = lists.get(key)
        if words is None:
            words = lists[key] = [known[code] for code in np.frombuffer(key, dtype=codes.dtype).tolist()]
        out.append(words)
    return out
