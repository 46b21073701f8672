"""The schemas as shipped: parsed once, with their fingerprints."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from eacgm.errors import DecodeError
from eacgm.events import EVENT_OF_TOPIC


@dataclass(frozen=True, slots=True)
class Schema:
    """One topic's schema.

    ``text`` is the file's JSON, ``parsed`` what fastavro works with, ``crc64`` the CRC-64-AVRO fingerprint of
    its canonical form, 8 bytes little-endian as single-object encoding wants it.
    """

    topic: str
    text: str
    parsed: Any
    crc64: bytes


@cache
def schemas() -> dict[str, Schema]:
    """Return every shipped schema by topic."""
    found = {}
    for topic in EVENT_OF_TOPIC:
        name = topic.split(".")[1]
        text = files("eacgm.schemas").joinpath(f"{name}.avsc").read_text(encoding="utf-8")
        parsed = fastavro.parse_schema(json.loads(text))
        canonical = to_parsing_canonical_form(json.loads(text))
        # fastavro prints the fingerprint's bytes in the order they travel (Avro: little-endian)
        crc64 = bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))
        found[topic] = Schema(topic, text, parsed, crc64)
    return found


def schema_of(topic: str) -> Schema:
    """Return the schema of a topic; raises ``DecodeError`` for a topic that is not ours."""
    try:
        return schemas()[topic]
    except KeyError:
        known = ", ".join(EVENT_OF_TOPIC)
        raise DecodeError(f"unknown topic {topic!r}; expected one of {known}") from None
