"""How an event travels on Kafka: Confluent's wire format with a registry, Avro single-object encoding without.

Both are always read, whatever is configured to be written.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence

import fastavro

from eacgm.errors import DecodeError, RegistryError
from eacgm.events import Event
from eacgm.schemas.codec import MAGIC, MAX_MESSAGE_BYTES, decode, encode, read_body, to_record
from eacgm.schemas.columns import read_columns
from eacgm.schemas.registry import Registry
from eacgm.schemas.store import Schema, by_fingerprint, schema_of

CONFLUENT_MAGIC = b"\x00"
_HEADER = struct.Struct(">bI")
#: the magic number and the fingerprint of single-object encoding
_SINGLE_OBJECT_BYTES = 10
#: fewer messages than these are read faster one by one
FEW = 8


class Framing:
    """Events to the bytes of a message and back.

    ``fallbacks`` counts events that went out in single-object encoding because the registry was away: nothing is lost
    by it, since every reader of ours reads both.
    """

    def __init__(self, registry: Registry | None = None) -> None:
        self._registry = registry
        self.fallbacks = 0

    def encode(self, event: Event) -> bytes:
        """Return the message's bytes; never fails for a registry that is away."""
        if self._registry is None:
            return encode(event)
        schema = schema_of(event.topic)
        try:
            schema_id = self._registry.id_of(schema)
        except RegistryError:
            self.fallbacks += 1
            return encode(event)
        out = io.BytesIO()
        out.write(_HEADER.pack(0, schema_id))
        fastavro.schemaless_writer(out, schema.parsed, to_record(event))
        return out.getvalue()

    def decode(self, payload: bytes, topic: str | None = None) -> Event:
        """Return the event in a message's bytes; with ``topic``, only an event of that topic will do.

        Raises ``DecodeError`` for bytes that can never be read, ``RegistryError`` for those that can once the registry
        is back: try these again.
        """
        event = self._read(payload)
        if topic is not None and event.topic != topic:
            raise DecodeError(f"holds a message of {event.topic}; expected one of {topic}")
        return event

    def decode_all(self, payloads: Sequence[bytes]) -> list[Event | DecodeError]:
        """Return the events in many messages' bytes, in order; the error in the place of those that cannot be read.

        Messages of today's schemas are read by columns, all others one by one. Raises ``RegistryError`` where one of
        them can be read only once the registry is back.
        """
        alike: dict[bytes, list[int]] = {}
        for place, payload in enumerate(payloads):
            alike.setdefault(payload[: header_size(payload)], []).append(place)
        out: dict[int, Event | DecodeError] = {}
        for header, places in alike.items():
            read = self._read_columns(header, [payloads[place] for place in places])
            if read is None:
                read = [self._event_or_error(payloads[place]) for place in places]
            out.update(zip(places, read, strict=True))
        return [out[place] for place in range(len(payloads))]

    def _read_columns(self, header: bytes, payloads: list[bytes]) -> Sequence[Event | DecodeError] | None:
        schema = self._own(header)
        if schema is None or len(payloads) < FEW or max(map(len, payloads)) > MAX_MESSAGE_BYTES:
            return None
        size = len(header)
        return read_columns(schema.topic, [payload[size:] for payload in payloads])

    def _own(self, header: bytes) -> Schema | None:
        """Return the schema that a header names if it is today's of ours, None for every other."""
        if header[:1] != CONFLUENT_MAGIC:
            written = by_fingerprint().get(header[2:]) if header[:2] == MAGIC else None
            return written if written is not None and written.crc64 == schema_of(written.topic).crc64 else None
        if self._registry is None or len(header) < _HEADER.size:
            return None
        try:
            writer = self._registry.writer(_HEADER.unpack(header)[1])
        except DecodeError:
            return None
        return writer.reader if writer.same else None

    def _event_or_error(self, payload: bytes) -> Event | DecodeError:
        try:
            return self._read(payload)
        except DecodeError as error:
            return error

    def _read(self, payload: bytes) -> Event:
        if payload[:1] != CONFLUENT_MAGIC:
            return decode(payload)
        if len(payload) > MAX_MESSAGE_BYTES:
            raise DecodeError(f"message of {len(payload)} bytes; expected at most {MAX_MESSAGE_BYTES}")
        if len(payload) < _HEADER.size:
            raise DecodeError(f"message of {len(payload)} bytes; expected 0x00, a schema's id and a body")
        _, schema_id = _HEADER.unpack_from(payload)
        if self._registry is None:
            raise DecodeError(f"refers to schema {schema_id} of a registry; give --registry to read it")
        writer = self._registry.writer(schema_id)
        body = io.BytesIO(payload)
        body.seek(_HEADER.size)
        if writer.same:
            return read_body(body, writer.reader, len(payload))
        return read_body(body, writer.reader, len(payload), writer.parsed)


def header_size(payload: bytes) -> int:
    """Return how many bytes stand before a message's body (fewer, if it is shorter)."""
    return _HEADER.size if payload[:1] == CONFLUENT_MAGIC else _SINGLE_OBJECT_BYTES
