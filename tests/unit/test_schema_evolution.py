"""Schemas change so that every message ever written is read, and old programs read new messages."""

import json
from pathlib import Path

import avro.schema
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from specimens import specimen, specimen_bytes

from eacgm.schemas import decode, encode, schemas
from eacgm.schemas.store import released

BYTES = Path(__file__).parents[1] / "golden" / "bytes"
VERSIONS = [
    pytest.param(topic, number, id=f"{topic}-{number}")
    for topic, versions in released().items()
    for number in range(1, len(versions) + 1)
]


def obstacles(reader, writer):
    """Why a reader cannot read what a writer wrote, one line each."""
    checker = ReaderWriterCompatibilityChecker()
    verdict = checker.get_compatibility(avro.schema.parse(reader), avro.schema.parse(writer))
    if verdict.compatibility is SchemaCompatibilityType.compatible:
        return []
    places = sorted(verdict.locations)
    return [f"{place}: {why}" for place, why in zip(places, sorted(verdict.messages), strict=False)] or ["incompatible"]


@pytest.mark.parametrize(("topic", "number"), VERSIONS)
def test_todays_schema_reads_every_released_one(topic, number):
    assert obstacles(schemas()[topic].text, released()[topic][number - 1].text) == []


@pytest.mark.parametrize(("topic", "number"), VERSIONS)
def test_every_released_schema_reads_todays(topic, number):
    assert obstacles(released()[topic][number - 1].text, schemas()[topic].text) == []


@pytest.mark.parametrize("topic", schemas())
def test_todays_schema_is_released(topic):
    """Otherwise a later version could not know the messages that today's writes."""
    versions = released()[topic]
    assert versions, "run tools/release-schemas"
    assert versions[-1].text == schemas()[topic].text, "a schema was changed: run tools/release-schemas"


@pytest.mark.parametrize(("topic", "number"), VERSIONS)
def test_bytes_of_every_version_are_read(topic, number):
    payload = (BYTES / f"{topic.split('.')[1]}.v{number}.bin").read_bytes()
    writer = released()[topic][number - 1]
    assert payload == specimen_bytes(writer), "released bytes never change"
    assert decode(payload) == specimen(writer)


@pytest.mark.parametrize("topic", schemas())
def test_specimens_fill_every_field(topic):
    """Else a lost field would not be seen above."""
    event = specimen(schemas()[topic])
    assert decode(encode(event)) == event
    for field in json.loads(schemas()[topic].text)["fields"]:
        value = getattr(event, field["name"])
        assert "default" not in field or repr(value) != repr(field["default"]), field["name"]


def changed(topic, change):
    schema = json.loads(schemas()[topic].text)
    change(schema["fields"])
    return json.dumps(schema)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda fields: fields.append({"name": "color", "type": "string"}), "color"),
        (lambda fields: fields[0].update(type="long"), "string"),
        (lambda fields: fields[0].update(name="task"), "task"),
    ],
    ids=["new field without default", "other type", "renamed"],
)
def test_an_incompatible_change_is_told_with_its_reason(change, reason):
    text = schemas()["eacgm.alerts.v1"].text
    told = obstacles(changed("eacgm.alerts.v1", change), text)
    assert len(told) >= 1
    assert reason in " ".join(told)


def test_a_new_field_with_a_default_is_compatible():
    text = schemas()["eacgm.alerts.v1"].text
    new = changed("eacgm.alerts.v1", lambda fields: fields.append({"name": "color", "type": "string", "default": ""}))
    assert obstacles(new, text) == obstacles(text, new) == []
