"""Events of one kind, each on the row of the rank that it tells of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from eacgm.events import Event, FloatArray, IntArray, no_ints
from eacgm.streams import scatter

SomeEvent = TypeVar("SomeEvent", bound=Event)


@dataclass(slots=True)
class Placed(Generic[SomeEvent]):
    """Events of one kind, and whose row each belongs to: ``rows`` of shape ``(n_events,)``, ascending."""

    events: list[SomeEvent] = field(default_factory=list)
    rows: IntArray = field(default_factory=no_ints)

    @classmethod
    def spread(cls, pairs: list[tuple[SomeEvent, list[int]]]) -> Placed[SomeEvent]:
        """Put each event on all its rows, rows ascending, the order of events kept within a row."""
        flat = sorted(((row, place) for place, (_, rows) in enumerate(pairs) for row in rows))
        return cls([pairs[place][0] for _, place in flat], np.array([row for row, _ in flat], dtype=np.int64))

    def seconds(self) -> FloatArray:
        """Return the length of each event's interval, of shape ``(n_events,)``."""
        return np.array([(event.end_ns - event.start_ns) * 1e-9 for event in self.events])

    def covered_seconds(self, n_ranks: int) -> FloatArray:
        """Return the summed length of each rank's intervals, of shape ``(n_ranks,)``, 0 where there is none."""
        return scatter.counted(self.rows, self.seconds(), n_ranks) if self.events else np.zeros(n_ranks)
