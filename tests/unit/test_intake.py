from collections import namedtuple

import pytest

from eacgm.errors import RegistryError
from eacgm.events import CallsEvent, DeadLetterEvent, HostEvent
from eacgm.schemas import decode, encode
from eacgm.schemas.framing import Framing
from eacgm.streams.intake import INPUT_TOPICS, MOST_KEPT_BYTES, Intake

NOW_NS = 1_700_000_000_000_000_000
SOURCE = (HostEvent.topic, 3)
Record = namedtuple("Record", "offset key value")


def decode_all(payloads):
    return Framing().decode_all(payloads)


def read(intake, key, value):
    (event,) = intake.read(SOURCE, [Record(17, key, value)], NOW_NS)
    return event


def host(**changed):
    return HostEvent(**({"job": "j", "start_ns": NOW_NS - 10, "end_ns": NOW_NS} | changed))


def test_a_message_of_ours_is_its_event():
    event = read(Intake(decode_all), b"j", encode(host()))
    assert isinstance(event, HostEvent)
    assert event.job == "j"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"j", b"rubbish", "begins with 7275"),
        (b"j", None, "begins with nothing"),
        (b"j", encode(CallsEvent(job="j", start_ns=0, end_ns=1)), "expected one of eacgm.host.v1"),
        (b"other", encode(host()), "has the key 'other'; expected its job, 'j'"),
        (None, encode(host()), "has the key ''"),
        (b"j", encode(host(end_ns=NOW_NS + 4 * 10**12)), "more than an hour ahead"),
        (b"j", encode(host(published_ns=NOW_NS + 4 * 10**12)), "more than an hour ahead"),
    ],
)
def test_what_cannot_be_read_is_a_dead_letter_with_its_place(key, value, reason):
    intake = Intake(decode_all)
    letter = read(intake, key, value)
    assert isinstance(letter, DeadLetterEvent)
    assert reason in letter.reason
    assert (letter.origin, letter.place) == (HostEvent.topic, "partition 3 offset 17")
    assert letter.payload == (value or b"")
    assert intake.n_dead == 1
    assert decode(encode(letter)).reason == letter.reason


def test_one_dead_letter_among_many_messages_changes_nothing_for_the_others():
    events = [host(rank=rank, cpu_seconds=rank / 4) for rank in range(20)]
    values = [encode(event) for event in events]
    values[7] = values[7][:-3]
    found = Intake(decode_all).read(SOURCE, [Record(17, b"j", value) for value in values], NOW_NS)
    assert [type(event) for event in found].count(DeadLetterEvent) == 1
    assert [event for place, event in enumerate(found) if place != 7] == events[:7] + events[8:]


def test_a_huge_message_is_kept_in_part_and_a_key_that_is_no_text_in_question_marks():
    letter = read(Intake(decode_all), b"\xff\xfe", bytes(10**6))
    assert len(letter.payload) == MOST_KEPT_BYTES
    assert decode(encode(letter)).job == letter.job


def test_a_message_whose_schema_cannot_be_asked_for_now_is_no_dead_letter():
    def away(payloads):
        raise RegistryError("the registry does not answer")

    intake = Intake(away)
    with pytest.raises(RegistryError):
        read(intake, b"j", b"\x00")
    assert intake.n_dead == 0


def test_every_topic_that_agents_write_is_read():
    assert len(INPUT_TOPICS) == 6
