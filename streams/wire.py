"""How a worker's messages travel; what a worker needs to know of Kafka, and nothing that Kafka's clients need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eacgm.errors import DecodeError
from eacgm.events import AlertEvent, DeadLetterEvent, Event, FrameEvent

#: what a worker writes besides alerts
OUTPUT_TOPICS: tuple[str, ...] = (FrameEvent.topic, DeadLetterEvent.topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """Brokers and credentials as Faust wants them, framing, headers of alerts, and the topics' number of partitions.

    ``starts`` says where the group goes on in topic-partitions (blocking; raises ``BrokerError``).
    ``decode`` returns errors in the place of messages that can never be read, and raises ``RegistryError`` where one
    can be read later.
    """

    broker: str
    n_partitions: int
    decode: Callable[[Sequence[bytes]], Sequence[Event | DecodeError]]
    encode: Callable[[Event], bytes]
    headers: Callable[[AlertEvent], Mapping[str, bytes]]
    starts: Callable[[Iterable[tuple[str, int]]], dict[tuple[str, int], int]]
    alerts_topic: str = AlertEvent.topic
    credentials: Any = None
