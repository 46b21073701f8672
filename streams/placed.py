"""Events of one kind, each on the row of the rank that it tells of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from eacgm.events import Event, IntArray, no_ints

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
