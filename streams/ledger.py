"""Time lost to short pauses: single windows that no persistence rule would catch, added up.

A garbage collection of 0.7 s now and then, on another rank each time, costs a synchronous job as much as a rank that
is always 2 % slow. The ledger keeps, per cause, the seconds lost in each of the last windows.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eacgm.events import FloatArray

#: windows that the ledger looks back
SPAN_WINDOWS = 240
#: the first windows only teach what is usual
LEARNING_WINDOWS = 15
#: a shorter pause is not worth an entry (seconds)
MIN_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Loss:
    """What one cause took within the span: ``seconds``, in ``occurrences`` windows, the last at ``last_window``.

    ``ranks`` are those that paused, most often first.
    """

    seconds: float
    occurrences: int
    first_window: int
    last_window: int
    ranks: tuple[int, ...]


@dataclass(slots=True)
class Ledger:
    """Pauses of one kind over the last windows: (window, seconds, ranks)."""

    entries: deque[tuple[int, float, tuple[int, ...]]] = field(default_factory=deque)
    usual_seconds: float = 0.0
    first_seconds: list[float] = field(default_factory=list)

    def book(self, window: int, ranks: list[int], seconds: FloatArray) -> None:
        """Enter a window: ``seconds`` of shape ``(n_ranks,)`` spent in the pause by each rank, NaN if none.

        In a synchronous job everyone waits for the one who pauses longest, so the loss is the maximum's excess over
        what is usual.
        """
        while self.entries and self.entries[0][0] <= window - SPAN_WINDOWS:
            self.entries.popleft()
        told = np.where(np.isnan(seconds), 0.0, seconds)
        longest = float(told.max(initial=0.0))
        if len(self.first_seconds) < LEARNING_WINDOWS:
            self.first_seconds.append(longest)
            self.usual_seconds = float(np.median(self.first_seconds))
            return
        threshold = max(MIN_PAUSE_SECONDS, 5.0 * self.usual_seconds)
        if longest > threshold:
            paused = tuple(rank for rank, value in zip(ranks, told.tolist(), strict=True) if value > threshold)
            self.entries.append((window, longest - self.usual_seconds, paused))
        else:
            self.usual_seconds += (longest - self.usual_seconds) / SPAN_WINDOWS

    def loss(self) -> Loss | None:
        """Return what was lost within the span, None if nothing."""
        if not self.entries:
            return None
        counts: dict[int, int] = {}
        for _, _, ranks in self.entries:
            for rank in ranks:
                counts[rank] = counts.get(rank, 0) + 1
        ordered = tuple(sorted(counts, key=lambda rank: (-counts[rank], rank)))
        seconds = sum(entry[1] for entry in self.entries)
        return Loss(seconds, len(self.entries), self.entries[0][0], self.entries[-1][0], ordered)

    def state(self) -> dict[str, Any]:
        """Return everything that ``load`` needs."""
        return {
            "entries": [[window, seconds, list(ranks)] for window, seconds, ranks in self.entries],
            "usual_seconds": self.usual_seconds,
            "first_seconds": list(self.first_seconds),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        self.entries = deque((int(w), float(s), tuple(r)) for w, s, r in state["entries"])
        self.usual_seconds = float(state["usual_seconds"])
        self.first_seconds = [float(seconds) for seconds in state["first_seconds"]]
