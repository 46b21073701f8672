import struct

import pytest
from specimens import specimen

from eacgm.errors import DecodeError
from eacgm.schemas import MAX_MESSAGE_BYTES, encode, schemas
from eacgm.schemas.framing import Framing

ALERT = specimen(schemas()["eacgm.alerts.v1"])


def test_without_a_registry_messages_are_single_object():
    assert Framing().encode(ALERT) == encode(ALERT)
    assert Framing().decode(encode(ALERT)) == ALERT


def test_a_message_in_the_wrong_topic_is_refused():
    assert Framing().decode(encode(ALERT), "eacgm.alerts.v1") == ALERT
    with pytest.raises(DecodeError, match=r"holds a message of eacgm.alerts.v1; expected one of eacgm.calls.v1"):
        Framing().decode(encode(ALERT), "eacgm.calls.v1")


def test_a_registry_id_without_a_registry_says_what_to_do():
    with pytest.raises(DecodeError, match="schema 7 of a registry; give --registry"):
        Framing().decode(b"\x00" + struct.pack(">I", 7) + b"body")


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "begins with nothing"),
        (b"\x00", "message of 1 bytes"),
        (b"\x00\x00\x00", "message of 3 bytes"),
        (b'{"job":"x"}', "begins with 7b22"),
        (b"\xc3\x01" + b"\xff" * 8, "fingerprint ffffffffffffffff is not ours"),
        (b"\x00" * (MAX_MESSAGE_BYTES + 1), "expected at most"),
        (b"\xc3" * (MAX_MESSAGE_BYTES + 1), "expected at most"),
        (encode(ALERT)[:-1], "ends before the eacgm.alerts.v1 message does"),
        (encode(ALERT) + b"x", "1 bytes follow"),
    ],
)
def test_foreign_bytes_are_refused_with_the_reason(payload, reason):
    with pytest.raises(DecodeError, match=reason):
        Framing().decode(payload)
