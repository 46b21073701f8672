import json

import pytest

from eacgm.errors import DecodeError
from eacgm.schemas import schemas
from eacgm.schemas.writer import MAX_SCHEMA_BYTES, writer_of

TOPIC = "eacgm.alerts.v1"


def with_field(kind):
    schema = json.loads(schemas()[TOPIC].text)
    schema["fields"].append({"name": "extra", "type": kind})
    return json.dumps(schema)


def test_our_own_schema_needs_no_resolving():
    for topic, schema in schemas().items():
        writer = writer_of(schema.text)
        assert writer.same
        assert writer.reader.topic == topic


@pytest.mark.parametrize(
    "kind",
    [
        "string",
        ["null", "string"],
        {"type": "array", "items": "string"},
        {"type": "map", "values": "null"},
        {"type": "array", "items": {"type": "record", "name": "One", "fields": [{"name": "a", "type": "long"}]}},
        {"type": "array", "items": {"type": "fixed", "name": "Two", "size": 2}},
        {"type": "enum", "name": "Three", "symbols": ["A"]},
    ],
    ids=str,
)
def test_a_later_version_is_read_by_ours(kind):
    writer = writer_of(with_field(kind))
    assert not writer.same
    assert writer.reader.topic == TOPIC


NOTHING = {"type": "record", "name": "Nothing", "fields": []}
HOLLOW = {"type": "record", "name": "Hollow", "fields": [{"name": "a", "type": "null"}, {"name": "b", "type": NOTHING}]}
ENDLESS = {"type": "record", "name": "Endless", "fields": [{"name": "next", "type": ["null", "Endless"]}]}
MUTUAL = {
    "type": "record",
    "name": "Left",
    "fields": [
        {
            "name": "right",
            "type": {
                "type": "record",
                "name": "Right",
                "fields": [{"name": "left", "type": {"type": "array", "items": "Left"}}],
            },
        }
    ],
}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ({"type": "array", "items": "null"}, "without size"),
        ({"type": "array", "items": NOTHING}, "without size"),
        ({"type": "array", "items": HOLLOW}, "without size"),
        ({"type": "array", "items": {"type": "fixed", "name": "Zero", "size": 0}}, "without size"),
        (["null", {"type": "array", "items": "null"}], "without size"),
        (ENDLESS, "contains itself"),
        (MUTUAL, "contains itself"),
    ],
    ids=["null", "empty", "hollow", "fixed", "in a union", "endless", "mutual"],
)
def test_schemas_that_allow_messages_without_bound_are_refused(kind, reason):
    with pytest.raises(DecodeError, match=reason):
        writer_of(with_field(kind))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no Avro schema"),
        ('"string"', "expected one of ours"),
        ('{"type": "record", "name": "Order", "fields": []}', "is Order; expected one of ours"),
        (json.dumps({"type": "record", "name": "A", "doc": "x" * MAX_SCHEMA_BYTES, "fields": []}), "more than"),
        ("[" * 100_000, "no Avro schema"),
    ],
)
def test_other_schemas_are_refused(text, reason):
    with pytest.raises(DecodeError, match=reason):
        writer_of(text)
