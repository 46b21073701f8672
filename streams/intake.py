"""Messages of the input topics to events; what cannot be read becomes a dead letter, never an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

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
from eacgm.streams.holdings import Place
from eacgm.streams.window import HORIZON_NS

#: what a worker reads
INPUT_TOPICS: tuple[str, ...] = tuple(
    kind.topic for kind in (ProcessEvent, CallsEvent, CollectivesEvent, GpuEvent, HostEvent, SamplesEvent)
)
#: bytes of an unreadable message that its dead letter keeps
MOST_KEPT_BYTES = 256 * 1024


class Message(NamedTuple):
    """A message as it stands on its topic."""

    place: Place
    key: bytes | None
    value: bytes | None


class Intake:
    """Decodes messages and counts those that it refuses."""

    def __init__(self, decode: Callable[[Sequence[bytes]], Sequence[Event | DecodeError]]) -> None:
        """Take the decoder of messages' values."""
        self._decode = decode
        self.n_dead = 0

    def read(self, messages: Sequence[Message], now_ns: int) -> list[Event]:
        """Return each message's event, or its dead letter; ``now_ns`` is the time here (UTC).

        Dead are bytes that do not decode, an event of another topic than the message's, a key that is not the event's
        job (it would be in another partition than the rest of its job), and times more than an hour ahead of now.
        Raises ``RegistryError`` where one of them can be read only once the registry is back; none counts as read then.
        """
        found = self._decode([message.value or b"" for message in messages])
        out: list[Event] = []
        for message, event in zip(messages, found, strict=True):
            try:
                if isinstance(event, DecodeError):
                    raise event
                self._check(event, message.place, message.key, now_ns)
            except DecodeError as error:
                event = self._dead_letter(message, str(error), now_ns)
            out.append(event)
        return out

    def _dead_letter(self, message: Message, reason: str, now_ns: int) -> DeadLetterEvent:
        self.n_dead += 1
        return DeadLetterEvent(
            job=_text(message.key),
            role="worker",
            start_ns=now_ns,
            end_ns=now_ns,
            published_ns=now_ns,
            origin=message.place.topic,
            place=f"partition {message.place.partition} offset {message.place.offset}",
            reason=reason,
            payload=(message.value or b"")[:MOST_KEPT_BYTES],
        )

    def _check(self, event: Event, place: Place, key: bytes | None, now_ns: int) -> None:
        if event.topic != place.topic:
            raise DecodeError(f"holds a message of {event.topic}; expected one of {place.topic}")
        if key != event.job.encode():
            raise DecodeError(f"has the key {_text(key)!r}; expected its job, {event.job!r}")
        if max(event.end_ns, event.published_ns) > now_ns + HORIZON_NS:
            raise DecodeError(f"is of {event.end_ns} ns, more than an hour ahead of {now_ns}; mend its node's clock")


def _text(key: bytes | None) -> str:
    return (key or b"").decode(errors="replace")[:200]
