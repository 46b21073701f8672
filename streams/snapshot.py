"""State to bytes and back: msgpack, arrays raw, events in Avro, all of it compressed. Nothing is ever executed."""

from __future__ import annotations

import zlib
from typing import Any

import msgpack
import numpy as np

from eacgm.errors import InputError
from eacgm.events import Event
from eacgm.schemas import decode, encode

MAGIC = b"eACGMs"
VERSION = 1
#: a larger snapshot is refused before it is unpacked
MAX_BYTES = 4 * 1024**3
_ARRAY = 1
_EVENT = 2


def pack(state: dict[str, Any]) -> bytes:
    """Return plain values, numpy arrays and events as bytes.

    >>> unpack(pack({"a": np.arange(2), 3: None}))
    {'a': array([0, 1]), 3: None}
    """
    body = msgpack.packb(state, default=_extension)
    return MAGIC + bytes([VERSION]) + zlib.compress(body, 1)


def unpack(payload: bytes) -> dict[str, Any]:
    """Return what ``pack`` put into bytes; raises ``InputError`` for anything else."""
    if payload[: len(MAGIC)] != MAGIC or len(payload) <= len(MAGIC):
        raise InputError("is no snapshot of ours (begins with other bytes); expected one that eACGM has written")
    version = payload[len(MAGIC)]
    if version != VERSION:
        raise InputError(f"snapshot of version {version}; this eACGM reads version {VERSION}: start without it")
    try:
        inflate = zlib.decompressobj()
        body = inflate.decompress(payload[len(MAGIC) + 1 :], MAX_BYTES)
        if not inflate.eof:
            raise ValueError("truncated or too large")
        state = msgpack.unpackb(
            body, ext_hook=_object, strict_map_key=False, max_bin_len=MAX_BYTES, max_ext_len=MAX_BYTES
        )
    except Exception as error:  # noqa: BLE001 - whatever damaged bytes provoke
        raise InputError(f"damaged snapshot ({type(error).__name__}: {error}); start without it") from None
    if not isinstance(state, dict):
        raise InputError("damaged snapshot (no state in it); start without it")
    return state


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
