"""Events to their topics: keyed by job, idempotent, bounded; what became of them is counted."""

from __future__ import annotations

import threading
from typing import Any

from confluent_kafka import KafkaException

from eacgm.events import AlertEvent, Event
from eacgm.kafka.clients import open_producer
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.schemas.cloudevents import alert_headers
from eacgm.schemas.framing import Framing

#: what may wait for a broker that is away; beyond it events are dropped and counted
MOST_WAITING_KIB = 64 * 1024
#: how long an event may wait for a broker before it counts as failed
PATIENCE_MS = 300_000


class Publisher:
    """Publishes events from any thread and never raises for a broker that is away.

    The first event of each topic may wait for the schema registry, a few seconds at most: ``outbox`` does not wait.

    ``delivered``, ``failed`` (the brokers refused them, or were away too long) and ``dropped`` (no room left) count
    events.
    """

    def __init__(self, connection: Connection, framing: Framing, complaints: Complaints) -> None:
        """Open the producer; raises ``ConfigError`` for settings that cannot be."""
        settings = {"queue.buffering.max.kbytes": MOST_WAITING_KIB, "message.timeout.ms": PATIENCE_MS}
        self._producer = open_producer(connection, complaints, settings)
        self._framing = framing
        self._lock = threading.Lock()
        self.delivered = self.failed = self.dropped = 0

    @property
    def waiting(self) -> int:
        """How many events wait to be delivered."""
        return len(self._producer)

    def publish(self, event: Event, *, topic: str | None = None, time_ms: int | None = None) -> None:
        """Hand one event to the producer, for its own topic unless told otherwise.

        ``time_ms`` is the message's time on Kafka (UTC ms), by default that of the call.
        """
        headers: Any = alert_headers(event) if isinstance(event, AlertEvent) else None
        value = self._framing.encode(event)
        try:
            self._producer.produce(
                topic or event.topic,
                key=event.job.encode(),
                value=value,
                headers=headers,
                on_delivery=self._note,
                timestamp=time_ms or 0,  # librdkafka's word for now
            )
        except (BufferError, KafkaException):
            with self._lock:
                self.dropped += 1
        self._producer.poll(0)

    def flush(self, seconds: float) -> int:
        """Wait at most so long for what is under way; return how many events are still waiting."""
        return int(self._producer.flush(seconds))

    def _note(self, error: Any, message: Any) -> None:
        with self._lock:
            if error is None:
                self.delivered += 1
            else:
                self.failed += 1
