"""Events to their topics whatever the brokers do: in order, never in the way of whoever publishes, losses counted.

Events are encoded and sent by a thread of its own. As long as the brokers answer they go straight to the producer. When
a message does not arrive in time, all that have not arrived go to the backlog, and what comes later goes behind them;
the backlog is then sent oldest first until it is empty.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from eacgm.events import Event
from eacgm.kafka.backlog import Backlog, Letter
from eacgm.schemas.framing import Framing

#: a message that has not arrived by then goes to the backlog
ARRIVAL_MS = 5000
#: of the backlog so much is under way at a time
BATCH_BYTES = 1024 * 1024
#: events that may wait to be encoded; beyond them the newest are dropped
MOST_EVENTS = 100_000
PAUSE_SECONDS = 0.1
#: after a batch of the backlog has failed the next attempt waits so long
RETRY_SECONDS = 1.0
#: these will not arrive however often they are sent
_HOPELESS = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError._INVALID_ARG})


class _Sent:
    """A letter under way; ``arrived`` None while nobody knows."""

    __slots__ = ("arrived", "letter")

    def __init__(self, letter: Letter) -> None:
        self.letter = letter
        self.arrived: bool | None = None


class Outbox:
    """Publishes events from any thread, between ``with`` and its end.

    ``delivered`` counts messages that have arrived, ``failed`` those that the brokers will never take.
    """

    def __init__(self, open_producer: Callable[[], Producer], framing: Framing, backlog: Backlog) -> None:
        """Take how to open a producer (its messages should fail after ``ARRIVAL_MS``) and where to keep what waits."""
        self._open_producer = open_producer
        self._producer = open_producer()
        self._framing = framing
        self._backlog = backlog
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._sent: deque[_Sent] = deque()
        #: what came since a message failed and until the fate of all others under way is known
        self._held: deque[Letter] = deque()
        self._failing = self._fatal = False
        #: whether what is under way is of the backlog, then its first letter's number and how many have arrived
        self._from_backlog = False
        self._batch_first = self._n_done = 0
        self._retry_at = 0.0
        self._told_lost = self._left = 0
        self._overflown = 0
        self.delivered = self.failed = 0
        self._stop = threading.Event()
        self._deadline = 0.0
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)

    @property
    def waiting(self) -> int:
        """Messages that have not arrived yet, those in the backlog included."""
        under_way = 0 if self._from_backlog else len(self._sent)
        return self._events.qsize() + under_way + len(self._held) + len(self._backlog)

    @property
    def kept(self) -> int:
        """Messages in the backlog."""
        return len(self._backlog)

    @property
    def dropped(self) -> int:
        """Messages for which there was no room."""
        return self._overflown + self._backlog.dropped

    def publish(self, event: Event) -> None:
        """Take an event; returns at once."""
        if self._events.qsize() >= MOST_EVENTS:
            self._overflown += 1
        else:
            self._events.put(event)

    def take_losses(self) -> int:
        """Return how many messages were lost since the last call."""
        lost = self.dropped + self.failed
        fresh, self._told_lost = lost - self._told_lost, lost
        return fresh

    def __enter__(self) -> Outbox:
        """Begin to send."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End at once; what has not arrived stays in the backlog."""
        self.close(0.0)

    def close(self, seconds: float) -> int:
        """Send for at most so long what waits; return how many messages wait then, all of them in the backlog."""
        if not self._stop.is_set():
            self._deadline = time.monotonic() + seconds
            self._stop.set()
            self._thread.join()
            self._keep_all()
            self._backlog.close()
        return self._left

    def _run(self) -> None:
        while not self._stop.is_set():
            self._turn()
        while time.monotonic() < self._deadline and self.waiting:
            self._turn()

    def _turn(self) -> None:
        for event in self._waiting_events():
            self._take(Letter(event.topic, event.job.encode(), self._framing.encode(event)))
        self._producer.poll(0)
        self._settle()
        if len(self._backlog) and not self._sent and not self._held and time.monotonic() >= self._retry_at:
            self._send_backlog()

    def _waiting_events(self) -> list[Event]:
        """Return the events that came; wait a moment if there are none."""
        found: list[Event] = []
        try:
            found.append(self._events.get(timeout=PAUSE_SECONDS))
            while len(found) < 1000:
                found.append(self._events.get_nowait())
        except queue.Empty:
            pass
        return found

    def _take(self, letter: Letter) -> None:
        if self._failing and not self._from_backlog:
            self._held.append(letter)
        elif len(self._backlog) or self._from_backlog:
            self._backlog.append(letter)
        else:
            self._send(letter)

    def _send(self, letter: Letter) -> None:
        sent = _Sent(letter)
        self._sent.append(sent)
        try:
            self._producer.produce(
                letter.topic, key=letter.key, value=letter.value, on_delivery=partial(self._note, sent)
            )
        except (BufferError, KafkaException) as error:
            self._note(sent, error.args[0] if isinstance(error, KafkaException) else None, None)

    def _note(self, sent: _Sent, error: Any, message: Any) -> None:
        """Take note of what became of a message; called by the producer's poll."""
        if error is None and message is not None:
            sent.arrived = True
            self.delivered += 1
        elif error is not None and error.code() in _HOPELESS:
            sent.arrived = True  # nothing is left to do for it
            self.failed += 1
        else:
            sent.arrived = False
            self._failing = True
            self._fatal |= error is not None and (error.fatal() or error.code() == KafkaError._FATAL)

    def _settle(self) -> None:
        """Let go of what has arrived; once all fates are known, put what has failed where it waits."""
        if not self._failing:
            while self._sent and self._sent[0].arrived:
                self._sent.popleft()
                if self._from_backlog:
                    self._n_done += 1
            if self._from_backlog and not self._sent:
                self._backlog.remove_until(self._batch_first + self._n_done)
                self._from_backlog = False
            return
        if any(sent.arrived is None for sent in self._sent):
            return
        if self._from_backlog:
            while self._sent and self._sent[0].arrived:
                self._sent.popleft()
                self._n_done += 1
            # those behind the first that failed are sent again: their order counts, and readers know repetitions
            self._backlog.remove_until(self._batch_first + self._n_done)
            self._retry_at = time.monotonic() + RETRY_SECONDS
        else:
            for sent in self._sent:
                if not sent.arrived:
                    self._backlog.append(sent.letter)
        self._sent.clear()
        for letter in self._held:
            self._backlog.append(letter)
        self._held.clear()
        self._failing = self._from_backlog = False
        if self._fatal:
            # an idempotent producer that has lost count sends nothing any more
            self._producer, self._fatal = self._open_producer(), False

    def _send_backlog(self) -> None:
        batch = self._backlog.head(BATCH_BYTES)
        if batch:
            self._from_backlog, self._batch_first, self._n_done = True, self._backlog.first, 0
            for letter in batch:
                self._send(letter)

    def _keep_all(self) -> None:
        """Put everything that has not arrived into the backlog, in order."""
        self._producer.flush(0)
        if self._from_backlog:
            n_arrived = 0
            for sent in self._sent:
                if not sent.arrived:
                    break
                n_arrived += 1
            self._backlog.remove_until(self._batch_first + self._n_done + n_arrived)
        else:
            for sent in self._sent:
                if not sent.arrived:
                    self._backlog.append(sent.letter)
        for letter in self._held:
            self._backlog.append(letter)
        while not self._events.empty():
            event = self._events.get()
            self._backlog.append(Letter(event.topic, event.job.encode(), self._framing.encode(event)))
        self._left = len(self._backlog)
