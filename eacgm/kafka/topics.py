"""The topics that eACGM needs, and how those of a cluster differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from eacgm.errors import ConfigError
from eacgm.events import AlertEvent, DeadLetterEvent, FrameEvent, event_classes
from eacgm.kafka.clients import MAX_BATCH_BYTES, refusal

REQUEST_SECONDS = 30.0
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
#: the Faust application's name; its table's changelog is named after it
WORKER = "eacgm-worker"
TABLE = "snapshots"

#: how long a message is of use: raw ones for a replay of the last days, verdicts for a look back
_RETENTION_MS = {
    FrameEvent.topic: 7 * DAY_MS,
    AlertEvent.topic: 30 * DAY_MS,
    DeadLetterEvent.topic: 14 * DAY_MS,
}
_USUAL_RETENTION_MS = 3 * DAY_MS


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as it should be: ``settings`` are Kafka's topic configurations."""

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """How one topic of the cluster is not as it should be; ``what`` is ``missing``, a setting, or a count."""

    topic: str
    what: str
    found: str | None
    expected: str

    def __str__(self) -> str:
        """Return the difference as one line."""
        if self.what == "missing":
            return f"{self.topic}: missing; expected {self.expected}"
        return f"{self.topic}: {self.what} is {self.found}; expected {self.expected}"


def changelog(worker: str = WORKER) -> str:
    """Return the name of the worker's changelog topic.

    >>> changelog()
    'eacgm-worker-snapshots-changelog'
    """
    return f"{worker}-{TABLE}-changelog"


def wanted(partitions: int, replicas: int, worker: str = WORKER) -> tuple[Topic, ...]:
    """Return every topic as it should be; all have as many partitions, so that a job's messages meet at one worker."""
    names = [kind.topic for kind in event_classes()]
    found = [Topic(name, partitions, replicas, _settings(name, replicas)) for name in names]
    found.append(Topic(changelog(worker), partitions, replicas, _compacted(replicas)))
    return tuple(found)


def like_alerts(name: str, replicas: int) -> Topic:
    """Return a topic for the alerts of a second look: as the alerts' own, of one partition."""
    return Topic(name, 1, replicas, _settings(AlertEvent.topic, replicas))


def _settings(name: str, replicas: int) -> dict[str, str]:
    retention_ms = _RETENTION_MS.get(name, _USUAL_RETENTION_MS)
    return {"cleanup.policy": "delete", "retention.ms": str(retention_ms), **_common(replicas)}


def _compacted(replicas: int) -> dict[str, str]:
    # a dead job's tombstone must outlive the longest absence of a worker
    return {"cleanup.policy": "compact", "delete.retention.ms": str(DAY_MS), **_common(replicas)}


def _common(replicas: int) -> dict[str, str]:
    return {"max.message.bytes": str(MAX_BATCH_BYTES), "min.insync.replicas": str(min(2, replicas))}


def differences(admin: AdminClient, topics: Iterable[Topic]) -> list[Difference]:
    """Return how the cluster's topics differ from ``topics``, in their order.

    A topic may keep more than it should and have more replicas: only what is too little is a difference, except for
    partitions and clean-up, which must be equal. Raises ``BrokerError``.
    """
    topics = tuple(topics)
    try:
        present = admin.list_topics(timeout=REQUEST_SECONDS).topics
    except KafkaException as error:
        raise refusal(error) from None
    settings = _configurations(admin, [topic.name for topic in topics if topic.name in present])
    found: list[Difference] = []
    for topic in topics:
        if topic.name not in present:
            found.append(Difference(topic.name, "missing", None, f"{topic.partitions} partitions"))
            continue
        found += _counts(topic, present[topic.name])
        found += _deviations(topic, settings[topic.name])
    return found


def _counts(topic: Topic, metadata: Any) -> list[Difference]:
    found = []
    if len(metadata.partitions) != topic.partitions:
        found.append(Difference(topic.name, "partitions", str(len(metadata.partitions)), str(topic.partitions)))
    replicas = min((len(partition.replicas) for partition in metadata.partitions.values()), default=0)
    if replicas < topic.replicas:
        found.append(Difference(topic.name, "replicas", str(replicas), str(topic.replicas)))
    return found


def _deviations(topic: Topic, settings: Mapping[str, str | None]) -> list[Difference]:
    found = []
    for name, expected in topic.settings.items():
        value = settings.get(name)
        if value is None or not _enough(name, value, expected):
            found.append(Difference(topic.name, name, value, expected))
    return found


def _enough(name: str, value: str, expected: str) -> bool:
    if name == "cleanup.policy":
        return value == expected
    # retention.ms = -1 keeps for ever
    return value == "-1" or (expected != "-1" and int(value) >= int(expected))


def _configurations(admin: AdminClient, names: list[str]) -> dict[str, dict[str, str | None]]:
    if not names:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    found = {}
    for resource, future in admin.describe_configs(resources, request_timeout=REQUEST_SECONDS).items():
        entries = _result(future)
        found[resource.name] = {name: entry.value for name, entry in entries.items()}
    return found


def kept_ms(admin: AdminClient, names: Iterable[str]) -> int | None:
    """Return for how many ms the one of these topics that forgets first keeps messages, None if all keep for ever.

    Raises ``BrokerError``.
    """
    settings = _configurations(admin, list(names)).values()
    limits = [int(one.get("retention.ms") or -1) for one in settings if "delete" in (one.get("cleanup.policy") or "")]
    return min((limit for limit in limits if limit >= 0), default=None)


def create(admin: AdminClient, topics: Iterable[Topic]) -> list[str]:
    """Create what is missing, change nothing that exists; returns the created topics' names.

    Raises ``BrokerError`` where the cluster refuses.
    """
    new = [NewTopic(topic.name, topic.partitions, topic.replicas, config=dict(topic.settings)) for topic in topics]
    created = []
    for name, future in admin.create_topics(new, request_timeout=REQUEST_SECONDS).items():
        try:
            future.result(REQUEST_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise refusal(error) from None
        else:
            created.append(name)
    return created


def alter(admin: AdminClient, found: Iterable[Difference]) -> list[Difference]:
    """Change what exists to what is expected; returns the differences that are left to people.

    Fewer partitions and more replicas cannot be had by altering. Raises ``BrokerError``.
    """
    left, settings, counts = [], dict[str, list[ConfigEntry]](), dict[str, int]()
    for one in found:
        if one.what == "partitions" and int(one.found or 0) < int(one.expected):
            counts[one.topic] = int(one.expected)
        elif one.what in ("partitions", "replicas", "missing"):
            left.append(one)
        else:
            entry = ConfigEntry(one.what, one.expected, incremental_operation=AlterConfigOpType.SET)
            settings.setdefault(one.topic, []).append(entry)
    if settings:
        changes = [
            ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries) for name, entries in settings.items()
        ]
        for future in admin.incremental_alter_configs(changes, request_timeout=REQUEST_SECONDS).values():
            _result(future)
    if counts:
        grown = [NewPartitions(name, count) for name, count in counts.items()]
        for future in admin.create_partitions(grown, request_timeout=REQUEST_SECONDS).values():
            _result(future)
    return left


def usual_replicas(brokers: int) -> int:
    """Return the replication of new topics in a cluster of so many brokers: three where there are as many.

    >>> usual_replicas(1), usual_replicas(5)
    (1, 3)
    """
    if brokers < 1:
        raise ConfigError("the cluster has no broker; expected at least one")
    return min(3, brokers)


def _result(future: Any) -> Any:
    try:
        return future.result(REQUEST_SECONDS)
    except KafkaException as error:
        raise refusal(error) from None
