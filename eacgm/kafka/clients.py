"""librdkafka's clients, opened so that trouble is one line and none of it goes to standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata

from eacgm.errors import BrokerError, ConfigError
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.schemas import MAX_MESSAGE_BYTES

#: how long a command waits for the brokers' first answer
REACH_SECONDS = 10.0
#: Java's and aiokafka's partitioner; librdkafka's own (CRC32) would part a job's events from its snapshots
PARTITIONER = "murmur2_random"

Client = TypeVar("Client")
#: the largest batch on a topic: headers come on top of what a message may hold
MAX_BATCH_BYTES = MAX_MESSAGE_BYTES + 64 * 1024

AnyClient = Producer | Consumer | AdminClient
Settings = Mapping[str, Any]


def open_producer(connection: Connection, complaints: Complaints, settings: Settings | None = None) -> Producer:
    """Return an idempotent producer that parts keys as Java does; ``settings`` are librdkafka's.

    Raises ``ConfigError`` for settings that librdkafka refuses.
    """
    usual = {
        "enable.idempotence": True,
        "compression.type": "lz4",
        "linger.ms": 20,
        "message.max.bytes": MAX_BATCH_BYTES,
    }
    return _open(Producer, connection, complaints, {**usual, **(settings or {}), "partitioner": PARTITIONER})


def open_consumer(connection: Connection, complaints: Complaints, settings: Settings) -> Consumer:
    """Return a consumer that commits nothing by itself; ``settings`` are librdkafka's, at least ``group.id``.

    Raises ``ConfigError`` for settings that librdkafka refuses.
    """
    return _open(Consumer, connection, complaints, {"enable.auto.commit": False, **settings})


def open_admin(connection: Connection, complaints: Complaints) -> AdminClient:
    """Return a client for topics and their settings; raises ``ConfigError``."""
    return _open(AdminClient, connection, complaints, {})


def reach(client: AnyClient, complaints: Complaints, seconds: float = REACH_SECONDS) -> ClusterMetadata:
    """Return the cluster's metadata as soon as a broker answers; a consumer must not have subscribed yet.

    Raises ``BrokerError`` after ``seconds``, at once when waiting is hopeless (a refused password, an unknown host).
    """
    until = time.monotonic() + seconds
    while True:
        try:
            metadata = client.list_topics(timeout=min(1.0, max(0.1, until - time.monotonic())))
        except KafkaException:
            # the exception says "transport failure" whatever happened; poll brings the reason to the complaints
            client.poll(0.05)
        else:
            complaints.reached()
            return metadata
        if complaints.hopeless or time.monotonic() >= until:
            raise complaints.error()


def refusal(error: KafkaException) -> BrokerError:
    """Return a request's failure as one line."""
    said = error.args[0]
    return BrokerError(f"Kafka refuses: {said.str()} ({said.name()})")


def _open(kind: Callable[..., Client], connection: Connection, complaints: Complaints, settings: Settings) -> Client:
    try:
        return kind({"client.id": "eacgm", **connection.librdkafka(), **settings, **complaints.settings})
    except KafkaException as error:
        raise ConfigError(f"no client for {connection.bootstrap}: {error.args[0].str()}") from None
