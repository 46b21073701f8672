"""Events to bytes and back: Avro single-object encoding (0xC3 0x01, CRC-64 fingerprint, body).

The Avro record of an event has the event's field names; arrays of two dimensions travel flattened, row by row.
"""

from __future__ import annotations

import io
from dataclasses import fields
from functools import cache
from typing import Any

import fastavro
import numpy as np

from eacgm.errors import DecodeError
from eacgm.events import (
    EVENT_OF_TOPIC,
    AlertEvent,
    CallsEvent,
    CollectivesEvent,
    Event,
    Evidence,
    FrameEvent,
    GpuEvent,
    HostEvent,
    LayerCoverage,
    ProcessEvent,
    SamplesEvent,
)
from eacgm.schemas import bounds
from eacgm.schemas.store import Schema, by_fingerprint, schema_of

MAGIC = b"\xc3\x01"
#: a larger message is refused before it is parsed
MAX_MESSAGE_BYTES = 8 * 1024 * 1024

#: per class: sets of columns that describe the same rows
COLUMNS: dict[type[Event], tuple[tuple[str, ...], ...]] = {
    CallsEvent: (
        (
            "layer",
            "function",
            "count",
            "errors",
            "payload_bytes",
            "total_ns",
            "max_ns",
            "open_count",
            "open_age_ns",
        ),
        ("histogram_row", "histogram_bucket", "histogram_count"),
        ("error_row", "error_code", "error_count"),
    ),
    CollectivesEvent: (
        (
            "communicator",
            "operation",
            "call_sequence",
            "payload_bytes",
            "call_start_ns",
            "call_end_ns",
            "return_code",
        ),
        ("open_communicator", "open_operation", "open_call_sequence", "open_call_start_ns"),
    ),
    GpuEvent: (("process_pid", "process_memory_bytes", "process_sm_ratio"),),
    HostEvent: (
        ("peer_address", "peer_sent_bytes", "peer_received_bytes", "peer_retransmits", "peer_rtt_seconds"),
        (
            "port_name",
            "port_active",
            "port_sent_bytes",
            "port_received_bytes",
            "port_errors",
            "port_retransmits",
            "port_link_downs",
        ),
    ),
    SamplesEvent: (("name", "value"),),
    FrameEvent: (("ranks", "present", "nodes", "groups", "values"),),
}


@cache
def _array_fields(topic: str) -> tuple[tuple[str, type], ...]:
    found: list[tuple[str, type]] = []
    for f in fields(EVENT_OF_TOPIC[topic]):
        if f.type == "IntArray":
            found.append((f.name, np.int64))
        elif f.type == "FloatArray":
            found.append((f.name, np.float64))
    return tuple(found)


@cache
def _names(topic: str) -> tuple[str, ...]:
    return tuple(f.name for f in fields(EVENT_OF_TOPIC[topic]))


def to_record(event: Event) -> dict[str, Any]:
    """Return the event as the plain dict that its Avro schema describes."""
    record = {name: getattr(event, name) for name in _names(event.topic)}
    for name, _ in _array_fields(event.topic):
        record[name] = record[name].ravel().tolist()
    if isinstance(event, ProcessEvent):
        record["layers"] = [{n: getattr(item, n) for n in LayerCoverage.__slots__} for item in event.layers]
    elif isinstance(event, AlertEvent):
        record["evidence"] = [{n: getattr(item, n) for n in Evidence.__slots__} for item in event.evidence]
    return record


def from_record(topic: str, record: dict[str, Any]) -> Event:
    """Return the event that a decoded Avro record of ``topic`` describes.

    Fields that this version does not know are dropped, and readings that are no number are as if not told. Raises
    ``DecodeError`` where columns differ in length, an interval ends before it starts, or a number is out of bounds.
    """
    kind = EVENT_OF_TOPIC[topic]
    known = {name: record[name] for name in _names(topic) if name in record}
    for name, dtype in _array_fields(topic):
        if name in known:
            if dtype is np.int64:
                bounds.check_whole(name, known[name])
            known[name] = np.array(known[name], dtype=dtype)
    bounds.check_head(known)
    bounds.without_impossible(topic, known)
    if kind is SamplesEvent and "value" in known:
        known["value"] = bounds.readings(known["value"])
    if kind is ProcessEvent:
        known["layers"] = [LayerCoverage(**item) for item in known.get("layers", ())]
    elif kind is AlertEvent:
        known["evidence"] = [Evidence(**item) for item in known.get("evidence", ())]
    elif kind is FrameEvent:
        known["values"] = _rows(known.get("values"), len(known.get("ranks", ())), len(known.get("features", ())))
    event = kind(**known)
    if event.end_ns < event.start_ns:
        raise DecodeError(f"interval ends ({event.end_ns}) before it starts ({event.start_ns})")
    for columns in COLUMNS.get(kind, ()):
        lengths = {len(getattr(event, name)) for name in columns}
        if len(lengths) > 1:
            raise DecodeError(f"columns {', '.join(columns)} differ in length; expected one row each per entry")
    return event


def _rows(flat: Any, n_rows: int, n_columns: int) -> Any:
    if flat is None or (flat.size == 0 and n_rows * n_columns == 0):
        return np.empty((n_rows, n_columns), dtype=np.float64 if flat is None else flat.dtype)
    if flat.size != n_rows * n_columns:
        raise DecodeError(f"a table of {n_rows} x {n_columns} has {flat.size} cells")
    return flat.reshape(n_rows, n_columns)


def encode(event: Event) -> bytes:
    """Return the event in Avro single-object encoding."""
    schema = schema_of(event.topic)
    out = io.BytesIO()
    out.write(MAGIC)
    out.write(schema.crc64)
    fastavro.schemaless_writer(out, schema.parsed, to_record(event))
    return out.getvalue()


def decode(payload: bytes) -> Event:
    """Return the event that single-object encoded bytes hold.

    Raises ``DecodeError`` for other framing, an unknown fingerprint, a truncated or oversized body, or trailing bytes.
    """
    if len(payload) > MAX_MESSAGE_BYTES:
        raise DecodeError(f"message of {len(payload)} bytes; expected at most {MAX_MESSAGE_BYTES}")
    if len(payload) < 10 or payload[:2] != MAGIC:
        raise DecodeError(f"begins with {payload[:2].hex() or 'nothing'}; expected Avro single-object encoding (c301)")
    written = by_fingerprint().get(payload[2:10])
    if written is None:
        raise DecodeError(
            f"schema fingerprint {payload[2:10].hex()} is not ours; expected one of {len(by_fingerprint())} known"
        )
    body = io.BytesIO(payload)
    body.seek(10)
    current = schema_of(written.topic)
    return read_body(body, current, len(payload), None if written.crc64 == current.crc64 else written.parsed)


def read_body(body: io.BytesIO, schema: Schema, end: int, writer: Any = None) -> Event:
    """Return the event whose Avro body starts at the stream's position and must end at offset ``end``.

    ``writer`` is the parsed schema it was written with where that is not ``schema``.
    """
    try:
        if writer is None:
            record = fastavro.schemaless_reader(body, schema.parsed, None)
        else:
            record = fastavro.schemaless_reader(body, writer, schema.parsed)
    except DecodeError:
        raise
    except EOFError:
        raise DecodeError(f"ends before the {schema.topic} message does") from None
    except Exception as error:  # noqa: BLE001 - fastavro raises whatever the bytes provoke
        raise DecodeError(f"body is no {schema.topic} message ({type(error).__name__}: {error})") from None
    if body.tell() != end:
        raise DecodeError(f"{end - body.tell()} bytes follow the {schema.topic} message; expected none")
    assert isinstance(record, dict)
    return from_record(schema.topic, record)
