"""How an event travels on Kafka: Confluent's wire format with a registry, Avro single-object encoding without.

Both are always read, whatever is configured to be written.
"""

from __future__ import annotations

import io
import struct

import fastavro

from eacgm.errors import DecodeError, RegistryError
from eacgm.events import Event
from eacgm.schemas.codec import MAX_MESSAGE_BYTES, decode, encode, read_body, to_record
from eacgm.schemas.registry import Registry
from eacgm.schemas.store import schema_of

CONFLUENT_MAGIC = b"\x00"
_HEADER = struct.Struct(">bI")


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
