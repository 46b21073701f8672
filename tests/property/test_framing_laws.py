"""Whatever the bytes, decoding gives an event or a DecodeError; what was encoded comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specimens import specimen

from eacgm.errors import DecodeError
from eacgm.schemas import encode, schemas
from eacgm.schemas.framing import Framing

EVENTS = [specimen(schema) for schema in schemas().values()]


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(payload):
    with pytest.raises(DecodeError):
        Framing().decode(payload)


@given(st.sampled_from(EVENTS), st.data())
def test_damaged_messages_never_raise_anything_else(event, data):
    payload = bytearray(encode(event))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        Framing().decode(bytes(payload))
    except DecodeError as error:
        assert "\n" not in str(error)  # noqa: PT017 - an event is as good an outcome


@given(st.sampled_from(EVENTS))
def test_what_was_encoded_comes_back(event):
    assert Framing().decode(Framing().encode(event), event.topic) == event
