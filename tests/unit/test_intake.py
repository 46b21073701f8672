import pytest

from eacgm.errors import RegistryError
from eacgm.events import CallsEvent, DeadLetterEvent, HostEvent
from eacgm.schemas import decode, encode
from eacgm.streams.holdings import Place
from eacgm.streams.intake import INPUT_TOPICS, MOST_KEPT_BYTES, Intake

NOW_NS = 1_700_000_000_000_000_000
PLACE = Place(HostEvent.topic, 3, 17)


def host(**changed):
    return HostEvent(**({"job": "j", "start_ns": NOW_NS - 10, "end_ns": NOW_NS} | changed))


def test_a_message_of_ours_is_its_event():
    event = Intake(decode).read(PLACE, b"j", encode(host()), NOW_NS)
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
    intake = Intake(decode)
    letter = intake.read(PLACE, key, value, NOW_NS)
    assert isinstance(letter, DeadLetterEvent)
    assert reason in letter.reason
    assert (letter.origin, letter.place) == (HostEvent.topic, "partition 3 offset 17")
    assert letter.payload == (value or b"")
    assert intake.n_dead == 1
    assert decode(encode(letter)).reason == letter.reason


def test_a_huge_message_is_kept_in_part_and_a_key_that_is_no_text_in_question_marks():
    letter = Intake(decode).read(PLACE, b"\xff\xfe", bytes(10**6), NOW_NS)
    assert len(letter.payload) == MOST_KEPT_BYTES
    assert decode(encode(letter)).job == letter.job


def test_a_message_whose_schema_cannot_be_asked_for_now_is_no_dead_letter():
    def away(payload):
        raise RegistryError("the registry does not answer")

    intake = Intake(away)
    with pytest.raises(RegistryError):
        intake.read(PLACE, b"j", b"\x00", NOW_NS)
    assert intake.n_dead == 0


def test_every_topic_that_agents_write_is_read():
    assert len(INPUT_TOPICS) == 6
