"""Alerts from their topic, each once however often it was written."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from eacgm.errors import BrokerError, DecodeError
from eacgm.events import AlertEvent
from eacgm.kafka.clients import open_consumer, reach, refusal
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.schemas.framing import Framing
from eacgm.schemas.registry import Registry

#: ids that are remembered: a worker that takes over repeats at most some seconds
MOST_IDS = 100_000
REQUEST_SECONDS = 10.0
#: messages before the committed ones that a group reads again, to know what it has said
REWIND_MESSAGES = 1000
COORDINATOR_SECONDS = 0.3
#: what passes though the client does not say so
_PASSING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._WAIT_COORD,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
)
#: nothing came for so long though alerts are known to be there
PATIENCE_SECONDS = 30.0
_MS = 1_000_000
_END = -1


class AlertReader:
    """Reads a topic's alerts from a time on, in the order of publication within each job.

    Repetitions (same ``id``) are left out and counted in ``repeated``, messages that are no alert in ``dead``;
    ``known`` are alerts from before the place where a group goes on, newest last. A context manager. Raises
    ``BrokerError`` where the brokers do not answer or the topic is missing.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        topic: str = AlertEvent.topic,
        since_ns: int | None = None,
        group: str | None = None,
    ) -> None:
        """Connect; ``since_ns`` (UTC ns) None begins with the oldest alert that is there.

        A ``group`` goes on behind what it has committed (``commit``), whatever ``since_ns`` says; there should be one
        reader of it at a time.
        """
        self._complaints = Complaints(connection)
        self._group = group
        settings = {"group.id": group or "eacgm-alerts", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer: Consumer = open_consumer(connection, self._complaints, settings)
        self._registry = Registry(connection.registry) if connection.registry is not None else None
        self._framing = Framing(self._registry)
        self._seen: OrderedDict[str, None] = OrderedDict()
        self.repeated = self.dead = 0
        self.known: list[AlertEvent] = []
        #: partition -> the offset behind what was handed out, and those from which on it is news
        self._positions: dict[int, int] = {}
        #: id -> partition and offset of the alerts that were handed out last
        self._places: dict[str, tuple[int, int]] = {}
        self._news: dict[int, int] = {}
        present = reach(self._consumer, self._complaints).topics
        if topic not in present:
            usual = topic == AlertEvent.topic
            hint = f"run: eacgm topics create --bootstrap {connection.bootstrap}" if usual else "look for its name"
            raise BrokerError(f"no topic {topic} at {connection.bootstrap}; {hint}")
        try:
            self._begin([TopicPartition(topic, number) for number in sorted(present[topic].partitions)], since_ns)
        except KafkaException as error:
            raise refusal(error) from None

    def __enter__(self) -> AlertReader:
        """Return the reader itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the connections."""
        self._consumer.close()
        if self._registry is not None:
            self._registry.close()

    def to_the_end(self) -> Iterator[list[AlertEvent]]:
        """Yield the alerts that were there when the reader was opened, in batches."""
        heard_seconds = time.monotonic()
        while self._open:
            alerts = self.poll(1.0)
            if alerts:
                heard_seconds = time.monotonic()
                yield alerts
            self._look_at_positions()
            if time.monotonic() - heard_seconds > PATIENCE_SECONDS:
                raise self._complaints.error()

    def poll(self, seconds: float) -> list[AlertEvent]:
        """Return what comes within so many seconds; brokers that are away are waited for."""
        found: list[AlertEvent] = []
        self._places.clear()
        for message in self._consumer.consume(500, timeout=seconds):
            error = message.error()
            if error is not None:
                if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED):
                    raise refusal(KafkaException(error))
                continue
            partition, offset = message.partition() or 0, message.offset() or 0
            alert = self._alert(message.value() or b"")
            if offset < self._news.get(partition, 0):
                self.known += [alert] if alert is not None else []
                continue
            self._positions[partition] = offset + 1
            if alert is not None:
                found.append(alert)
                self._places[alert.id] = partition, offset
        return sorted(found, key=lambda alert: alert.published_ns)

    def commit(self, left: Sequence[AlertEvent] = ()) -> None:
        """Note for the group that all that was handed out is done with, but for ``left``, which came last.

        Raises ``BrokerError``.
        """
        positions = dict(self._positions)
        for partition, offset in (self._places[alert.id] for alert in left):
            positions[partition] = min(positions[partition], offset)
        if not positions:
            return
        places = [TopicPartition(self._topic, number, offset) for number, offset in positions.items()]
        try:
            _patiently(lambda: self._consumer.commit(offsets=places, asynchronous=False))
        except KafkaException as error:
            if _passing(error):
                return  # the next time covers it; whoever goes on before that repeats some
            raise refusal(error) from None
        if not left:
            self._positions.clear()

    def _begin(self, partitions: list[TopicPartition], since_ns: int | None) -> None:
        marks = {
            one.partition: self._consumer.get_watermark_offsets(one, timeout=REQUEST_SECONDS) for one in partitions
        }
        starts = {number: low for number, (low, _) in marks.items()}
        if since_ns is not None:
            asked = [TopicPartition(one.topic, one.partition, max(since_ns // _MS, 0)) for one in partitions]
            for one in self._consumer.offsets_for_times(asked, timeout=REQUEST_SECONDS):
                starts[one.partition] = marks[one.partition][1] if one.offset <= _END else one.offset
        if self._group is not None:
            for one in _patiently(lambda: self._consumer.committed(partitions, timeout=REQUEST_SECONDS)):
                if one.offset >= 0:
                    low, high = marks[one.partition]
                    self._news[one.partition] = min(one.offset, high)
                    starts[one.partition] = max(self._news[one.partition] - REWIND_MESSAGES, low)
        #: partition -> the offset at which it ended when reading began, as long as it was not reached
        self._open = {number: high for number, (_, high) in marks.items() if starts[number] < high}
        self._topic = partitions[0].topic
        self._consumer.assign([TopicPartition(self._topic, number, start) for number, start in starts.items()])

    def _look_at_positions(self) -> None:
        asked = [TopicPartition(self._topic, number) for number in self._open]
        for one in self._consumer.position(asked) if asked else ():
            if one.offset >= self._open[one.partition]:
                del self._open[one.partition]

    def _alert(self, payload: bytes) -> AlertEvent | None:
        try:
            alert = self._framing.decode(payload, AlertEvent.topic)
        except DecodeError:
            self.dead += 1
            return None
        assert isinstance(alert, AlertEvent)
        if alert.id in self._seen:
            self.repeated += 1
            return None
        self._seen[alert.id] = None
        if len(self._seen) > MOST_IDS:
            self._seen.popitem(last=False)
        return alert


def _patiently(ask: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
    """Ask the group's coordinator, which a young or troubled cluster has to find first."""
    until_seconds = time.monotonic() + REQUEST_SECONDS
    while True:
        try:
            return ask()
        except KafkaException as error:
            if not _passing(error) or time.monotonic() > until_seconds:
                raise
        time.sleep(COORDINATOR_SECONDS)


def _passing(error: KafkaException) -> bool:
    return bool(error.args[0].retriable()) or error.args[0].code() in _PASSING
