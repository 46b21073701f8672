"""Schemas that others wrote with: judged before a message is read by them.

A schema from a registry is foreign input. One whose arrays hold items of no size would let ten bytes claim a billion
items, and one that contains itself would let a message nest without end; both are refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from eacgm.errors import DecodeError
from eacgm.schemas.store import Schema, schemas

MAX_SCHEMA_BYTES = 256 * 1024
_SCALARS = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True)
class Writer:
    """The schema a message was written with, and ours to read it by; ``same`` if they read alike."""

    parsed: Any
    reader: Schema
    same: bool


def writer_of(text: str) -> Writer:
    """Return what is needed to read messages written by a schema (JSON text).

    The reader is found by the record's full name. Raises ``DecodeError`` for a schema that cannot be parsed, is of no
    event of ours, is too large, or allows messages without bound.
    """
    if len(text.encode()) > MAX_SCHEMA_BYTES:
        raise DecodeError(f"the writer's schema has more than {MAX_SCHEMA_BYTES} bytes")
    try:
        schema = json.loads(text)
        parsed = fastavro.parse_schema(schema)
        crc64 = bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))
    except Exception as error:  # noqa: BLE001 - fastavro raises whatever the text provokes
        raise DecodeError(f"the writer's schema is no Avro schema ({type(error).__name__}: {error})") from None
    name = parsed.get("name") if isinstance(parsed, dict) else None
    reader = {one.parsed["name"]: one for one in schemas().values()}.get(name)
    if reader is None:
        raise DecodeError(f"the writer's schema is {name or 'no record'}; expected one of ours, such as eacgm.v1.Alert")
    _smallest(parsed, {}, frozenset())
    return Writer(parsed, reader, crc64 == reader.crc64)


def _smallest(schema: Any, sizes: dict[str, int], open_names: frozenset[str]) -> int:
    """Return the least number of bytes that a value takes; raises ``DecodeError`` for what has no bound."""
    if isinstance(schema, list):
        return 1 + min((_smallest(branch, sizes, open_names) for branch in schema), default=0)
    if isinstance(schema, str):
        return _named(schema, sizes, open_names)
    kind = schema["type"]
    if kind in ("record", "error"):
        inside = open_names | {schema["name"]}
        sizes[schema["name"]] = sum(_smallest(f["type"], sizes, inside) for f in schema["fields"])
        return sizes[schema["name"]]
    if kind in ("array", "map"):
        items = _smallest(schema["items" if kind == "array" else "values"], sizes, open_names)
        if items + (kind == "map") == 0:
            raise DecodeError("the writer's schema has arrays of items without size; expected items of a byte or more")
        return 1
    if kind in ("enum", "fixed"):
        sizes[schema["name"]] = 1 if kind == "enum" else int(schema["size"])
        return sizes[schema["name"]]
    return _smallest(kind, sizes, open_names)


def _named(name: str, sizes: dict[str, int], open_names: frozenset[str]) -> int:
    if name == "null":
        return 0
    if name in _SCALARS:
        return 1
    if name in open_names:
        raise DecodeError(f"the writer's schema {name} contains itself; expected one of bounded depth")
    return sizes[name]
