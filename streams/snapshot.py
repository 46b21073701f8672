"""State to bytes and back: msgpack, arrays raw, events in Avro, all of it compressed. Nothing is ever executed.

A snapshot is the magic word, a byte of version, the body's size (8 bytes, little-endian) and the body by zstd.
"""

from __future__ import annotations

import struct
from typing import Any

import cramjam
import msgpack
import numpy as np

from eacgm.errors import InputError
from eacgm.events import Event
from eacgm.schemas import decode, encode

MAGIC = b"eACGMs"
VERSION = 2
#: a larger snapshot is refused before it is unpacked
MAX_BYTES = 2 * 1024**3
#: a fifth of zlib's time for a little less of its size
_LEVEL = 1
_SIZE = struct.Struct("<Q")
_ARRAY = 1
_EVENT = 2


def pack(state: dict[str, Any]) -> bytes:
    """Return plain values, numpy arrays and events as bytes.

    >>> unpack(pack({"a": np.arange(2), 3: None}))
    {'a': array([0, 1]), 3: None}
    """
    body = msgpack.packb(state, default=_extension)
    return MAGIC + bytes([VERSION]) + _SIZE.pack(len(body)) + bytes(cramjam.zstd.compress(body, level=_LEVEL))


def unpack(payload: bytes) -> dict[str, Any]:
    """Return what ``pack`` put into bytes; raises ``InputError`` for anything else."""
    if payload[: len(MAGIC)] != MAGIC or len(payload) <= len(MAGIC):
        raise InputError("is no snapshot of ours (begins with other bytes); expected one that eACGM has written")
    version = payload[len(MAGIC)]
    if version != VERSION:
        raise InputError(f"snapshot of version {version}; this eACGM reads version {VERSION}: start without it")
    try:
        body = _inflated(payload[len(MAGIC) + 1 :])
        state = msgpack.unpackb(
            body, ext_hook=_object, strict_map_key=False, max_bin_len=MAX_BYTES, max_ext_len=MAX_BYTES
        )
    except Exception as error:  # noqa: BLE001 - whatever damaged bytes provoke
        raise InputError(f"damaged snapshot ({type(error).__name__}: {error}); start without it") from None
    if not isinstance(state, dict):
        raise InputError("damaged snapshot (no state in it); start without it")
    return state


def _inflated(payload: bytes) -> bytearray:
    """Return a snapshot's body; raises whatever damaged bytes provoke."""
    (size,) = _SIZE.unpack_from(payload)
    if size > MAX_BYTES:
        raise ValueError(f"body of {size} bytes; expected at most {MAX_BYTES}")
    body = bytearray(size)
    if cramjam.zstd.decompress_into(payload[_SIZE.size :], body) != size:
        raise ValueError("body of another size than it says")
    return body


def _extension(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        packed = msgpack.packb([value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes()])
        return msgpack.ExtType(_ARRAY, packed)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Event):
        return msgpack.ExtType(_EVENT, encode(value))
    raise TypeError(f"{type(value).__name__} in a snapshot; expected plain values, arrays and events")


def _object(code: int, payload: bytes) -> Any:
    if code == _EVENT:
        return decode(payload)
    if code != _ARRAY:
        raise ValueError(f"extension {code}")
    dtype, shape, raw = msgpack.unpackb(payload, max_bin_len=MAX_BYTES)
    if np.dtype(dtype).kind not in "biuf":
        raise ValueError(f"array of {dtype}")
    return np.frombuffer(raw, dtype=dtype).reshape(shape).copy()
