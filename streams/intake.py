"""Messages of the input topics to events; what cannot be read becomes a dead letter, never an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from eacgm.errors import DecodeError
from eacgm.events import (
    CallsEvent,
    CollectivesEvent,
    DeadLetterEvent,
    Event,
    GpuEvent,
    HostEvent,
    ProcessEvent,
    SamplesEvent,
)
from eacgm.streams.holdings import Source
from eacgm.streams.window import HORIZON_NS

#: what a worker reads
INPUT_TOPICS: tuple[str, ...] = tuple(
    kind.topic for kind in (ProcessEvent, CallsEvent, CollectivesEvent, GpuEvent, HostEvent, SamplesEvent)
)
#: bytes of an unreadable message that its dead letter keeps
MOST_KEPT_BYTES = 256 * 1024


class Record(Protocol):
    """A message as Kafka's clients hand it out."""

    @property
    def offset(self) -> int: ...  # noqa: D102

    @property
    def key(self) -> bytes | None: ...  # noqa: D102

    @property
    def value(self) -> bytes | None: ...  # noqa: D102


class Intake:
    """Decodes messages and counts those that it refuses."""

    def __init__(self, decode: Callable[[Sequence[bytes]], Sequence[Event | DecodeError]]) -> None:
        """Take the decoder of messages' values."""
        self._decode = decode
        self.n_dead = 0

    def read(self, source: Source, records: Sequence[Record], now_ns: int) -> list[Event]:
        """Return each message's event, or its dead letter; ``now_ns`` is the time here (UTC).

        Dead are bytes that do not decode, an event of another topic than the message's, a key that is not the event's
        job (it would be in another partition than the rest of its job), and times more than an hour ahead of now.
        Raises ``RegistryError`` where one of them can be read only once the registry is back; none counts as read then.
        """
        topic, last_ns = source[0], now_ns + HORIZON_NS
        keys: dict[str, bytes] = {}
        out: list[Event] = []
        for record, event in zip(records, self._decode([record.value or b"" for record in records]), strict=True):
            if isinstance(event, DecodeError):
                reason = str(event)
            else:
                key = keys.get(event.job) or keys.setdefault(event.job, event.job.encode())
                if (
                    event.topic == topic
                    and record.key == key
                    and event.end_ns <= last_ns
                    and event.published_ns <= last_ns
                ):
                    out.append(event)
                    continue
                reason = _objection(event, topic, record.key, now_ns)
            out.append(self._dead_letter(source, record, reason, now_ns))
        return out

    def _dead_letter(self, source: Source, record: Record, reason: str, now_ns: int) -> DeadLetterEvent:
        self.n_dead += 1
        return DeadLetterEvent(
            job=_text(record.key),
            role="worker",
            start_ns=now_ns,
            end_ns=now_ns,
            published_ns=now_ns,
            origin=source[0],
            place=f"partition {source[1]} offset {record.offset}",
            reason=reason,
            payload=(record.value or b"")[:MOST_KEPT_BYTES],
        )


def _objection(event: Event, topic: str, key: bytes | None, now_ns: int) -> str:
    """Return why an event that was decoded is a dead letter."""
    if event.topic != topic:
        return f"holds a message of {event.topic}; expected one of {topic}"
    if key != event.job.encode():
        return f"has the key {_text(key)!r}; expected its job, {event.job!r}"
    return f"is of {event.end_ns} ns, more than an hour ahead of {now_ns}; mend its node's clock"


def _text(key: bytes | None) -> str:
    return (key or b"").decode(errors="replace")[:200]
