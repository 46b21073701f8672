"""A stretch of the input topics in the order of publication: what a recording is, read from Kafka.

Topic-partitions are read side by side and merged by time of publication, each one's own order kept; those that are
ahead wait, so that memory is bounded however unevenly the brokers deliver. Where reading ends is settled when it
begins: two readings of the same stretch give the same events in the same order.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from eacgm.errors import BrokerError
from eacgm.events import DeadLetterEvent, Event
from eacgm.kafka.clients import open_consumer, reach, refusal
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.schemas.framing import Framing
from eacgm.schemas.registry import Registry
from eacgm.streams.holdings import Source
from eacgm.streams.intake import INPUT_TOPICS, Intake

#: a message may have been delivered so long after what it tells (a node's spool): read on that far behind the end
DELAY_NS = 3_600_000_000_000
#: an event is out of order if it is so much older than one before it on its topic-partition
DISORDER_NS = 60_000_000_000
#: decoded events of a topic-partition at which it is paused, and at which it goes on
MOST_WAITING = 4000
FEW_WAITING = 1000
POLL_MESSAGES = 2000
#: nothing came for so long though messages are known to be there
PATIENCE_SECONDS = 30.0
REQUEST_SECONDS = 10.0
_MS = 1_000_000
SCHEME = "kafka://"
#: offsets_for_times answers a negative offset where there is no such message
_END = -1


class _Message(NamedTuple):
    """A message as ``Intake`` wants it."""

    offset: int
    key: bytes | None
    value: bytes | None


class _Reading:
    """One topic-partition: where it is, where it ends, and the events that wait."""

    __slots__ = ("at", "end", "events", "paused")

    def __init__(self, at: int, end: int) -> None:
        self.at, self.end = at, end
        self.events: deque[Event] = deque()
        self.paused = False

    @property
    def over(self) -> bool:
        return self.at >= self.end


class Stretch:
    """Events of the input topics from ``since_ns`` to ``until_ns`` (UTC ns; None: all there is, up to now).

    Kafka's own timestamps choose where to begin and end, so some events before and after come too: whoever iterates
    leaves them out by their own times. Only events of one ``job`` if it is given. ``dead`` counts messages that could
    not be read; ``share`` is how much has been read (0-1); ``disordered`` counts events far older than what stands
    before them on their topic: somebody has published a recording behind newer messages, and only job by job is there
    an order. Raises ``BrokerError`` where the brokers do not answer, or a topic is missing.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        since_ns: int | None = None,
        until_ns: int | None = None,
        job: str | None = None,
    ) -> None:
        self._complaints = Complaints(connection)
        settings = {"group.id": "eacgm-stretch", "auto.offset.reset": "earliest", "queued.max.messages.kbytes": 16384}
        self._consumer: Consumer = open_consumer(connection, self._complaints, settings)
        self._registry = Registry(connection.registry) if connection.registry is not None else None
        self._intake = Intake(Framing(self._registry).decode_all)
        present = reach(self._consumer, self._complaints).topics
        missing = [topic for topic in INPUT_TOPICS if topic not in present]
        if missing:
            hint = f"eacgm topics create --bootstrap {connection.bootstrap}"
            raise BrokerError(f"no topic {', '.join(missing)} at {connection.bootstrap}; run: {hint}")
        sources = [(topic, number) for topic in INPUT_TOPICS for number in sorted(present[topic].partitions)]
        self._readings = self._bounds(sources, since_ns, until_ns)
        self._total = sum(max(reading.end - reading.at, 0) for reading in self._readings.values())
        self._job = job
        self._n_read = self.disordered = 0
        self._heard_seconds = time.monotonic()

    @property
    def dead(self) -> int:
        """Messages that could not be read."""
        return self._intake.n_dead

    @property
    def share(self) -> float | None:
        """How much of the stretch has been read (0-1)."""
        return min(self._n_read / self._total, 1.0) if self._total else None

    def __iter__(self) -> Iterator[Event]:
        """Yield the events, oldest publication first; to be done once."""
        self._consumer.assign(
            [TopicPartition(*source, reading.at) for source, reading in self._readings.items() if not reading.over]
        )
        try:
            streams = [self._ordered(number, source) for number, source in enumerate(self._readings)]
            for _, _, _, event in heapq.merge(*streams):
                yield event
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._consumer.close()
        if self._registry is not None:
            self._registry.close()

    def _bounds(self, sources: list[Source], since_ns: int | None, until_ns: int | None) -> dict[Source, _Reading]:
        """Return where each topic-partition begins and ends."""
        try:
            marks = {
                source: self._consumer.get_watermark_offsets(TopicPartition(*source), timeout=REQUEST_SECONDS)
                for source in sources
            }
            begins = self._at(sources, since_ns)
            ends = self._at(sources, None if until_ns is None else until_ns + DELAY_NS)
        except KafkaException as error:
            raise refusal(error) from None
        return {
            source: _Reading(
                low if since_ns is None else (high if begins[source] <= _END else begins[source]),
                high if ends[source] <= _END else min(ends[source], high),
            )
            for source, (low, high) in marks.items()
        }

    def _at(self, sources: list[Source], time_ns: int | None) -> dict[Source, int]:
        """Return the offset of the first message at or after a time, negative where there is none."""
        if time_ns is None:
            return dict.fromkeys(sources, _END)
        asked = [TopicPartition(*source, max(time_ns // _MS, 0)) for source in sources]
        found = self._consumer.offsets_for_times(asked, timeout=REQUEST_SECONDS)
        return {(one.topic, one.partition): one.offset for one in found}

    def _ordered(self, number: int, source: Source) -> Iterator[tuple[int, int, int, Event]]:
        """Yield a topic-partition's events with what they are merged by: times that never go back."""
        reading, clock_ns, count = self._readings[source], 0, 0
        while True:
            while reading.events:
                event = reading.events.popleft()
                published_ns = event.published_ns or event.end_ns
                self.disordered += published_ns < clock_ns - DISORDER_NS
                clock_ns = max(clock_ns, published_ns)
                count += 1
                yield clock_ns, number, count, event
            if reading.over:
                return
            self._poll()

    def _poll(self) -> None:
        """Fetch some messages; pause what is far ahead and go on with what is not."""
        found: dict[Source, list[_Message]] = {}
        for message in self._consumer.consume(POLL_MESSAGES, timeout=1.0):
            if message.error() is not None:
                raise refusal(KafkaException(message.error()))
            source = (str(message.topic()), int(message.partition() or 0))
            found.setdefault(source, []).append(_Message(int(message.offset() or 0), message.key(), message.value()))
        for source, messages in found.items():
            self._note(self._readings[source], source, messages)
        self._look_at_positions()
        if found:
            self._heard_seconds = time.monotonic()
            self._complaints.reached()
        elif time.monotonic() - self._heard_seconds > PATIENCE_SECONDS:
            raise self._complaints.error()
        self._balance()

    def _note(self, reading: _Reading, source: Source, messages: list[_Message]) -> None:
        wanted = [message for message in messages if reading.at <= message.offset < reading.end]
        reading.at = max(reading.at, messages[-1].offset + 1)
        self._n_read += len(wanted)
        events = self._intake.read(source, wanted, time.time_ns())
        reading.events.extend(
            event
            for event in events
            if not isinstance(event, DeadLetterEvent) and (self._job is None or event.job == self._job)
        )

    def _look_at_positions(self) -> None:
        """Notice ends that no message shows: what stood there is compacted, or was never committed."""
        waiting = [TopicPartition(*source) for source, reading in self._readings.items() if not reading.over]
        for one in self._consumer.position(waiting) if waiting else ():
            reading = self._readings[one.topic, one.partition]
            if not reading.events:
                reading.at = max(reading.at, one.offset)

    def _balance(self) -> None:
        far, near = [], []
        for source, reading in self._readings.items():
            if not reading.over and not reading.paused and len(reading.events) > MOST_WAITING:
                reading.paused = True
                far.append(TopicPartition(*source))
            elif reading.paused and len(reading.events) < FEW_WAITING:
                reading.paused = False
                near.append(TopicPartition(*source))
        if far:
            self._consumer.pause(far)
        if near:
            self._consumer.resume(near)


def is_stretch(source: Any) -> bool:
    """Return whether a source given on the command line is Kafka and not a folder.

    >>> is_stretch("kafka://broker:9092"), is_stretch("recording")
    (True, False)
    """
    return str(source).startswith(SCHEME)
