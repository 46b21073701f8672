"""No message of a topic-partition is passed over, and none is taken twice, whatever the consumer hands out.

After a rebalance Faust may hand out messages from where the consumer's buffer happened to stand before it seeks to
the committed offset. Taken as they come they would mark all that lies between as included. Every rebalance needs a new
``Continuity``: what was shown before it says nothing about a gap after it.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import Generic, TypeVar

Source = TypeVar("Source", bound=Hashable)


class Verdict(Enum):
    """What to do with a message."""

    TAKE = "take"
    #: it was taken already, or is of a source that is not ours
    DROP = "drop"
    #: something is missing before it: drop it and seek to the expected offset
    SEEK = "seek"


class Continuity(Generic[Source]):
    """Expects every source's next offset.

    >>> continuity = Continuity[str]({"calls-0": 57})
    >>> [continuity.judge("calls-0", offset).value for offset in (120, 121, 57, 58, 57)]
    ['seek', 'drop', 'take', 'take', 'drop']
    """

    def __init__(self, starts: dict[Source, int]) -> None:
        """Take the offset at which each source begins."""
        self._next = dict(starts)
        # the first message behind a gap: if it comes again after a seek, there is nothing in the gap
        self._behind_gap: dict[Source, int] = {}

    def expected(self, source: Source) -> int | None:
        """Return the offset expected next, None for a source that is not ours."""
        return self._next.get(source)

    def follow(self, source: Source, first: int, last: int) -> bool:
        """Take the messages from ``first`` to ``last`` at once if they are the very next; else take none."""
        if self._next.get(source) != first:
            return False
        self._behind_gap.pop(source, None)
        self._next[source] = last + 1
        return True

    def judge(self, source: Source, offset: int) -> Verdict:
        """Say what to do with a message; a gap is believed (compaction, retention) once a seek has shown it again."""
        expected = self._next.get(source)
        if expected is None or offset < expected:
            return Verdict.DROP
        if offset > expected and self._behind_gap.get(source) != offset:
            if source in self._behind_gap and offset > self._behind_gap[source]:
                return Verdict.DROP  # on its way since before the seek
            self._behind_gap[source] = offset
            return Verdict.SEEK
        self._behind_gap.pop(source, None)
        self._next[source] = offset + 1
        return Verdict.TAKE
