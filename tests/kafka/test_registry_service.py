"""The schema registry that the tests start is real: it refuses what would break readers."""

import json

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

pytestmark = pytest.mark.kafka


def record(*fields):
    return Schema(json.dumps({"type": "record", "name": "R", "fields": fields}), "AVRO")


def test_an_incompatible_schema_is_refused(schema_registry):
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        first = client.register_schema("service-value", record({"name": "a", "type": "long"}))
        client.set_compatibility("service-value", "BACKWARD")
        assert client.get_schema(first).schema_str
        with pytest.raises(SchemaRegistryError):
            client.register_schema("service-value", record({"name": "b", "type": "long"}))
