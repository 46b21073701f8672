"""One job's events -> closed event-time windows.

Each event falls into exactly one window, by the middle of its interval. A window closes when the watermark (the
newest event time seen in the job, less the allowed lateness) has passed its end; windows close in order, and one in
which nothing was told is closed like any other, because silence must be visible. What comes after its window was
closed is counted as late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from eacgm.config import WindowConfig
from eacgm.events import Event, ProcessEvent

#: an event this far ahead of a running job is a broken clock, not progress
HORIZON_NS = 3_600_000_000_000
#: refused events after which it is asked who is in the minority: they, or those that were believed
TALLY_EVENTS = 16
#: windows of silence that are closed one by one; the rest of a longer gap is one long window
SILENT_WINDOWS = 60

_NOTHING: tuple[ClosedWindow, ...] = ()


@dataclass(slots=True)
class ClosedWindow:
    """The events whose intervals have their middle in ``[start_ns, end_ns)``, in the order in which they came.

    ``late`` counts the events that came too late for an earlier window since the last one closed. A window longer
    than the configured size is the rest of a long gap, and empty.
    """

    start_ns: int
    end_ns: int
    events: list[Event] = field(default_factory=list)
    late: int = 0


class Windows:
    """The open windows of one job."""

    def __init__(self, config: WindowConfig) -> None:
        self._size_ns = config.size_ms * 1_000_000
        self._twice_ns = 2 * self._size_ns
        self._lateness_ns = config.lateness_ms * 1_000_000
        self._open: dict[int, list[Event]] = {}
        self._newest_ns: int | None = None
        self._next: int | None = None  # the first window that is not closed; None before the first closing
        self._due_ns = 0
        # twice the bounds of the window that the last event fell into, and its events: most events follow another
        self._low_ns = self._high_ns = 0
        self._current: list[Event] = []
        #: whether every window is closed and the next event may be of any later time
        self.resting = True
        self._late = 0
        self.late = 0
        self.refused = 0
        # events closed so far, how many had been believed at the last tally, and those refused since
        self._closed = self._tallied = self._ahead = 0
        # whether the time was settled by a tally: the first event from the past does not unsettle it
        self._voted = False

    @property
    def newest_ns(self) -> int | None:
        """The newest event time seen (UTC ns), None before the first event."""
        return self._newest_ns

    @property
    def empty(self) -> bool:
        """Whether no event waits for its window to close."""
        return not self._open

    def add(self, event: Event) -> Sequence[ClosedWindow]:
        """Take one event; return the windows that it closes, in order.

        An event more than an hour ahead of a running job is refused and counted: one broken clock must not drag
        the watermark. But where more are refused than believed, the broken clocks are those that were believed, such
        as one that began in 1970: the job then begins anew at the later time.
        """
        end_ns = event.end_ns
        if self._low_ns <= event.start_ns + end_ns < self._high_ns and end_ns < self._due_ns:
            self._current.append(event)
            if end_ns > self._newest_ns:  # type: ignore[operator]  # a window is current only after an event
                self._newest_ns = end_ns
            return _NOTHING
        return self._add(event, end_ns)

    def _add(self, event: Event, end_ns: int) -> Sequence[ClosedWindow]:
        newest_ns = self._newest_ns
        if newest_ns is None or end_ns > newest_ns:
            if newest_ns is not None and not self.resting and end_ns - newest_ns > HORIZON_NS:
                self.refused += 1
                if not self._outvoted():
                    return _NOTHING
                self._restart(end_ns)
                self._voted = True
            self._newest_ns = newest_ns = end_ns
        elif self._next is None and newest_ns - end_ns > HORIZON_NS:
            if self._voted:
                self.refused += 1
                return _NOTHING
            self._restart(end_ns)
            newest_ns = end_ns
        self.resting = False
        index = (event.start_ns + end_ns) // self._twice_ns  # the window of the interval's middle
        if self._next is not None and index < self._next:
            self._late += 1
            self.late += 1
            if not isinstance(event, ProcessEvent):
                return _NOTHING
            index = self._next  # who a process is stays true, however late it is told
        waiting = self._open.get(index)
        if waiting is not None:
            waiting.append(event)
        else:
            self._open[index] = waiting = [event]
            self._set_due()
        if newest_ns >= self._due_ns:
            return self._close_due()
        if self._next is not None:
            self._low_ns, self._high_ns, self._current = index * self._twice_ns, (index + 1) * self._twice_ns, waiting
        return _NOTHING

    def _outvoted(self) -> bool:
        """Count one more event from ahead; return whether there have been more of them than of those believed."""
        self._ahead += 1
        if self._ahead < TALLY_EVENTS:
            return False
        believed = self._closed + sum(len(events) for events in self._open.values())
        outvoted = self._ahead > believed - self._tallied
        self._ahead, self._tallied = 0, believed
        return outvoted

    def close_all(self) -> Sequence[ClosedWindow]:
        """Close every window in which something was told; the next event may be of any later time."""
        self.resting = True
        return self._close(max(self._open) + 1) if self._open else _NOTHING

    def _restart(self, newest_ns: int) -> None:
        # what waits was told by a broken clock, and so was what has closed
        self.refused += sum(len(events) for events in self._open.values())
        self._open.clear()
        self._low_ns = self._high_ns = 0
        self._closed = self._tallied = self._ahead = 0
        self._next = None
        self._newest_ns = newest_ns

    def _set_due(self) -> None:
        first = self._next if self._next is not None else min(self._open)
        self._due_ns = (first + 1) * self._size_ns + self._lateness_ns

    def _close_due(self) -> Sequence[ClosedWindow]:
        assert self._newest_ns is not None
        return self._close((self._newest_ns - self._lateness_ns) // self._size_ns)

    def _close(self, until: int) -> list[ClosedWindow]:
        """Close the windows before index ``until``, silent ones included."""
        self._low_ns = self._high_ns = 0
        at = self._next if self._next is not None else min(self._open)
        told = sorted(index for index in self._open if index < until)
        closed: list[ClosedWindow] = []
        for index in told:
            closed += self._silence(at, index)
            events = self._open.pop(index)
            self._closed += len(events)
            closed.append(self._window(index, index + 1, events))
            at = index + 1
        closed += self._silence(at, until)
        self._next = max(at, until)
        self._set_due()
        if closed:
            closed[0].late, self._late = self._late, 0
        return closed

    def _silence(self, begin: int, end: int) -> list[ClosedWindow]:
        single = min(end, begin + SILENT_WINDOWS)
        windows = [self._window(index, index + 1, []) for index in range(begin, single)]
        if single < end:
            windows.append(self._window(single, end, []))
        return windows

    def _window(self, begin: int, end: int, events: list[Event]) -> ClosedWindow:
        return ClosedWindow(begin * self._size_ns, end * self._size_ns, events)

    def state(self) -> dict[str, Any]:
        """Return everything that the future depends on."""
        return {
            "open": {index: list(events) for index, events in self._open.items()},
            "newest_ns": self._newest_ns,
            "next": self._next,
            "resting": self.resting,
            "late_now": self._late,
            "late": self.late,
            "refused": self.refused,
            "tally": [self._closed, self._tallied, self._ahead, self._voted],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        self._low_ns = self._high_ns = 0
        self._open = {int(index): list(events) for index, events in state["open"].items()}
        self._newest_ns = state["newest_ns"]
        self._next = state["next"]
        self.resting = state["resting"]
        self._late = state["late_now"]
        self.late = state["late"]
        self.refused = state["refused"]
        self._closed, self._tallied, self._ahead, self._voted = state["tally"]
        if self._open or self._next is not None:
            self._set_due()
