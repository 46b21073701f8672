"""One message per schema with every field filled, by the field's name alone: the same for ever."""

from __future__ import annotations

import io
import json
import zlib
from typing import Any

import fastavro

from eacgm.events import Event
from eacgm.schemas.codec import MAGIC, from_record
from eacgm.schemas.store import Schema


def specimen_record(schema: Schema) -> dict[str, Any]:
    """Return a record of the schema, no field empty or at its default."""
    return _value(json.loads(schema.text), schema.topic, {})


def specimen(schema: Schema) -> Event:
    """Return the event that the record describes."""
    return from_record(schema.topic, specimen_record(schema))


def specimen_bytes(schema: Schema) -> bytes:
    """Return the record as a single-object encoded message, written by the schema given."""
    out = io.BytesIO()
    out.write(MAGIC + schema.crc64)
    fastavro.schemaless_writer(out, schema.parsed, specimen_record(schema))
    return out.getvalue()


def _value(kind: Any, name: str, seen: dict[str, Any]) -> Any:
    number = zlib.crc32(name.encode()) % 1000 + 1
    if isinstance(kind, list):
        return _value(next(branch for branch in kind if branch != "null"), name, seen)
    if isinstance(kind, dict) and kind["type"] == "record":
        seen[kind["name"]] = kind
        return {field["name"]: _value(field["type"], field["name"], seen) for field in kind["fields"]}
    if isinstance(kind, dict) and kind["type"] == "array":
        # a frame's table: two ranks by two features
        count = 4 if name == "values" else 2
        return [_value(kind["items"], f"{name}{index}", seen) for index in range(count)]
    if isinstance(kind, dict):
        return _value(kind["type"], name, seen)
    if kind in seen:
        return _value(seen[kind], name, seen)
    plain = {"long": number, "int": number, "double": number / 8, "boolean": True}
    plain |= {"string": name, "bytes": name.encode(), "float": number / 8}
    # an interval must not end before it starts
    return plain[kind] + (1_000_000 if name == "end_ns" else 0) if kind == "long" else plain[kind]
