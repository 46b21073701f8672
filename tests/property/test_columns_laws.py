"""Messages read by columns are what they are read one by one, or are left to be read one by one."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from eacgm.errors import DecodeError
from eacgm.producers.simulation import simulate
from eacgm.producers.simulation_plan import ClusterPlan
from eacgm.schemas import decode, encode
from eacgm.schemas.columns import MOST_BODIES, TOPICS, read_columns
from eacgm.schemas.framing import Framing

EVENTS = list(simulate(ClusterPlan(n_ranks=4, seconds=6, seed=3)))
BY_TOPIC = {topic: [event for event in EVENTS if event.topic == topic] for topic in TOPICS}


def one_by_one(payload):
    try:
        return decode(payload)
    except DecodeError as error:
        return str(error)


def told(read):
    return [str(one) if isinstance(one, DecodeError) else one for one in read]


def test_every_topic_that_is_read_so_is_read_alike():
    read_ones = [topic for topic, events in BY_TOPIC.items() if events]
    assert len(read_ones) >= 4
    for topic in read_ones:
        many = BY_TOPIC[topic] * (MOST_BODIES // len(BY_TOPIC[topic]) + 2)
        assert read_columns(topic, [encode(event)[10:] for event in many]) == many


def test_other_topics_and_nothing_at_all():
    assert read_columns("eacgm.alerts.v1", [b""]) is None
    assert read_columns("eacgm.host.v1", []) == []
    assert Framing().decode_all([]) == []


@given(st.integers(0, 2**32), st.integers(1, 40))
@settings(max_examples=150, deadline=None)
def test_damaged_messages_are_read_or_refused_like_one_by_one(seed, n_messages):
    chance = random.Random(seed)
    payloads = [bytearray(encode(chance.choice(EVENTS))) for _ in range(n_messages)]
    for payload in payloads:
        if chance.random() < 0.2:
            place = chance.randrange(len(payload))
            how = chance.randrange(3)
            if how == 0:
                payload[place] = chance.randrange(256)
            elif how == 1:
                del payload[place:]
            else:
                payload[place:place] = b"\xff" * chance.randrange(1, 9) + b"\x01"
    damaged = [bytes(payload) for payload in payloads]
    for ours, theirs in zip(told(Framing().decode_all(damaged)), map(one_by_one, damaged), strict=True):
        if isinstance(theirs, str) and "bytes follow" in theirs:
            continue  # bytes behind a body are not seen by columns
        assert ours == theirs
