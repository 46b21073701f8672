"""Messages are acknowledged in the order of their offsets, whatever the order in which they are done with.

A commit says: everything before this offset is done. Faust's own way of finding that offset overlooks a message that
is still open directly behind the committed offset, or before the first commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Source = TypeVar("Source", bound=Hashable)


class Acknowledgements(Generic[Source]):
    """The messages of each topic-partition that are not acknowledged yet.

    >>> acknowledgements = Acknowledgements[str]()
    >>> acknowledgements.take("calls-0", [7, 8, 9])
    >>> acknowledgements.finish([("calls-0", 8)])
    {}
    >>> acknowledgements.finish([("calls-0", 7)])
    {'calls-0': 9}
    """

    def __init__(self) -> None:
        self._open: dict[Source, deque[int]] = {}
        self._done: dict[Source, set[int]] = {}

    def __len__(self) -> int:
        """Return how many messages are taken and not acknowledged."""
        return sum(map(len, self._open.values()))

    def take(self, source: Source, offsets: Iterable[int]) -> None:
        """Know of messages; offsets of one source must ascend."""
        queue = self._open.get(source)
        if queue is None:
            queue = self._open[source] = deque()
            self._done[source] = set()
        queue.extend(offsets)

    def finish(self, places: Iterable[tuple[Source, int]]) -> dict[Source, int]:
        """Take note that messages are done with; return where a successor of each source would begin now.

        Sources that are no further than before are left out. Places that were never taken, or are forgotten, change
        nothing.
        """
        touched = dict.fromkeys(source for source, offset in places if self._note(source, offset))
        out: dict[Source, int] = {}
        for source in touched:
            queue, done = self._open[source], self._done[source]
            while queue and queue[0] in done:
                offset = queue.popleft()
                done.discard(offset)
                out[source] = offset + 1
        return out

    def _note(self, source: Source, offset: int) -> bool:
        queue = self._open.get(source)
        if not queue or not queue[0] <= offset <= queue[-1]:
            return False
        self._done[source].add(offset)
        return True

    def clear(self) -> None:
        """Forget everything: the sources are somebody else's."""
        self._open.clear()
        self._done.clear()
