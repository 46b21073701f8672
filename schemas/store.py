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
        found[topic] = _parse(topic, text)
    return found


@cache
def released() -> dict[str, tuple[Schema, ...]]:
    """Return, by topic, every version of its schema that was ever released, the oldest first.

    They lie in ``versions/NAME.N.avsc`` and never change: messages of theirs may still be on Kafka.
    """
    found: dict[str, tuple[Schema, ...]] = {}
    folder = files("eacgm.schemas").joinpath("versions")
    for topic in EVENT_OF_TOPIC:
        name, number, texts = topic.split(".")[1], 1, []
        while (file := folder.joinpath(f"{name}.{number}.avsc")).is_file():
            texts.append(file.read_text(encoding="utf-8"))
            number += 1
        found[topic] = tuple(_parse(topic, text) for text in texts)
    return found


@cache
def by_fingerprint() -> dict[bytes, Schema]:
    """Return every schema that we read, released and current, by the fingerprint in single-object encoding."""
    every = [schema for versions in released().values() for schema in versions]
    return {schema.crc64: schema for schema in (*every, *schemas().values())}


def _parse(topic: str, text: str) -> Schema:
    parsed = fastavro.parse_schema(json.loads(text))
    canonical = to_parsing_canonical_form(json.loads(text))
    # fastavro prints the fingerprint's bytes in the order they travel (Avro: little-endian)
    return Schema(topic, text, parsed, bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO")))


def schema_of(topic: str) -> Schema:
    """Return the schema of a topic; raises ``DecodeError`` for a topic that is not ours."""
    try:
        return schemas()[topic]
    except KeyError:
        known = ", ".join(EVENT_OF_TOPIC)
        raise DecodeError(f"unknown topic {topic!r}; expected one of {known}") from None
