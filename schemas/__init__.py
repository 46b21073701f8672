"""One Avro schema per topic, and what turns events into bytes and back."""

from eacgm.schemas.codec import MAX_MESSAGE_BYTES, decode, encode, from_record, to_record
from eacgm.schemas.store import Schema, schema_of, schemas

__all__ = [
    "MAX_MESSAGE_BYTES",
    "Schema",
    "decode",
    "encode",
    "from_record",
    "schema_of",
    "schemas",
    "to_record",
]
