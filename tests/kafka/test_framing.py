"""Messages with a real schema registry: written with its ids, read by others, and not lost while it is away."""

import json
import struct
from dataclasses import replace

import pytest
from confluent_kafka.schema_registry import Schema as Registered
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from local_kafka import Registry as Server
from local_kafka import free_ports
from specimens import specimen, specimen_record

from eacgm.errors import DecodeError, RegistryError
from eacgm.events import EVENT_OF_TOPIC
from eacgm.schemas import encode, schemas
from eacgm.schemas.framing import Framing
from eacgm.schemas.registry import PAUSE_SECONDS, Registry, RegistryAddress, register_all, subject

pytestmark = pytest.mark.kafka
TOPIC = "eacgm.alerts.v1"
ALERT = specimen(schemas()[TOPIC])


class Clock:
    """Seconds that pass when told to."""

    seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def registry(schema_registry, clock):
    client = Registry(RegistryAddress(url=schema_registry.url), clock)
    yield client
    client.close()


@pytest.fixture
def other(schema_registry):
    """Somebody else's client."""
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        yield client


@pytest.mark.parametrize("topic", EVENT_OF_TOPIC)
def test_messages_carry_the_registrys_id_and_come_back(registry, other, topic):
    event = specimen(schemas()[topic])
    payload = Framing(registry).encode(event)
    magic, schema_id = struct.unpack_from(">bI", payload)
    assert magic == 0
    assert schema_id == other.get_latest_version(subject(topic)).schema_id
    assert Framing(registry).decode(payload, topic) == event
    # the other framing is read by the same
    assert Framing(registry).decode(encode(event), topic) == event


def test_a_plain_avro_consumer_reads_our_messages(registry, other):
    payload = Framing(registry).encode(ALERT)
    read = AvroDeserializer(other)(payload, SerializationContext(TOPIC, MessageField.VALUE))
    assert read == specimen_record(schemas()[TOPIC])


def test_we_read_what_a_plain_avro_producer_wrote(registry, other):
    write = AvroSerializer(other, schemas()[TOPIC].text)
    payload = write(specimen_record(schemas()[TOPIC]), SerializationContext(TOPIC, MessageField.VALUE))
    assert Framing(registry).decode(payload, TOPIC) == ALERT


def foreign(other, name, change):
    """Register a changed alert schema under a subject of its own; returns its id and the changed schema."""
    schema = json.loads(schemas()[TOPIC].text)
    change(schema)
    return other.register_schema(name, Registered(json.dumps(schema), "AVRO")), schema


def test_a_later_version_is_resolved_to_ours(registry, other):
    def change(schema):
        # a field more, in front: without resolving, every later field would be misread
        schema["fields"].insert(0, {"name": "color", "type": "string", "default": "red"})

    _, schema = foreign(other, "later-value", change)
    write = AvroSerializer(other, json.dumps(schema), conf={"auto.register.schemas": True})
    record = {"color": "blue", **specimen_record(schemas()[TOPIC])}
    payload = write(record, SerializationContext("later", MessageField.VALUE))
    assert Framing(registry).decode(payload, TOPIC) == ALERT


def test_schemas_that_are_not_ours_are_dead_letters(registry, other):
    stranger = other.register_schema(
        "stranger-value", Registered('{"type": "record", "name": "Order", "fields": []}', "AVRO")
    )
    bomb, _ = foreign(
        other,
        "bomb-value",
        lambda schema: schema["fields"].append({"name": "x", "type": {"type": "array", "items": "null"}}),
    )
    for schema_id, reason in (
        (stranger, "expected one of ours"),
        (bomb, "without size"),
        (2_000_000_000, "schema 2000000000 is not in the registry"),
    ):
        with pytest.raises(DecodeError, match=reason):
            Framing(registry).decode(struct.pack(">bI", 0, schema_id) + b"\x02x")


def test_an_unknown_id_is_asked_for_again_later(registry, other, clock):
    # ids are given one by one: this one is the next
    last = other.register_schema("last-value", Registered('"string"', "AVRO"))
    with pytest.raises(DecodeError, match="not in the registry"):
        registry.writer(last + 1)
    given, _ = foreign(other, "next-value", lambda schema: schema.update(doc="another"))
    assert given == last + 1
    with pytest.raises(DecodeError, match="not in the registry"):
        registry.writer(given)
    clock.seconds += PAUSE_SECONDS + 1
    assert registry.writer(given).same


def test_the_registry_refuses_an_incompatible_schema_with_the_reason(registry, schema_registry):
    register_all(registry)
    schema = json.loads(schemas()[TOPIC].text)
    schema["fields"].append({"name": "color", "type": "string"})
    newcomer = Registry(RegistryAddress(url=schema_registry.url))
    try:
        with pytest.raises(RegistryError, match="refuses") as told:
            newcomer.id_of(replace(schemas()[TOPIC], text=json.dumps(schema)))
    finally:
        newcomer.close()
    assert "\n" not in str(told.value)
    assert "color" in str(told.value)


def test_nothing_is_lost_while_the_registry_is_away(tmp_path_factory, clock):
    server = Server.start(tmp_path_factory.mktemp("mortal"))
    registry = Registry(RegistryAddress(url=server.url), clock)
    framing = Framing(registry)
    try:
        known = framing.encode(ALERT)
    finally:
        server.stop()
    # what was asked for is remembered
    assert framing.encode(ALERT) == known
    assert framing.decode(known) == ALERT
    # what was not goes out in the other framing
    host = specimen(schemas()["eacgm.host.v1"])
    assert framing.encode(host) == encode(host)
    assert framing.fallbacks == 1
    assert registry.failures == 1
    # a message by an id that cannot be looked up now is no dead letter: it can be read later
    newcomer = Registry(RegistryAddress(url=server.url), clock)
    with pytest.raises(RegistryError, match="cannot be had"):
        Framing(newcomer).decode(known)
    # and nothing stands still for an absent registry
    for _ in range(1000):
        framing.encode(host)
    assert registry.failures == 1
    newcomer.close()
    registry.close()


def test_after_an_outage_the_registry_is_used_again(schema_registry, clock, monkeypatch):
    (port,) = free_ports(1)
    registry = Registry(RegistryAddress(url=f"http://127.0.0.1:{port}"), clock)
    framing = Framing(registry)
    assert framing.encode(ALERT)[:2] == b"\xc3\x01"
    registry.close()
    back = Registry(RegistryAddress(url=schema_registry.url), clock)
    monkeypatch.setattr(registry, "_client", back._client)
    assert framing.encode(ALERT)[:2] == b"\xc3\x01"
    clock.seconds += PAUSE_SECONDS + 1
    assert framing.encode(ALERT)[:1] == b"\x00"
    back.close()
