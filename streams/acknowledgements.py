"""Messages are acknowledged in the order of their offsets, whatever the order in which they are done with.

A commit says: everything before this offset is done. Faust leaves finding that offset to whoever acknowledges in
order: it overlooks a message that is still open directly behind the committed offset, or before the first commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Source = TypeVar("Source", bound=Hashable)
Handle = TypeVar("Handle")


class Acknowledgements(Generic[Source, Handle]):
    """The messages of each topic-partition that are not acknowledged yet.

    >>> acknowledgements = Acknowledgements[str, str]()
    >>> for offset in (7, 8, 9):
    ...     acknowledgements.take("calls-0", offset, f"message {offset}")
    >>> acknowledgements.finish([("calls-0", 8)])
    []
    >>> acknowledgements.finish([("calls-0", 7)])
    ['message 7', 'message 8']
    """

    def __init__(self) -> None:
        self._open: dict[Source, deque[tuple[int, Handle]]] = {}
        self._done: set[tuple[Source, int]] = set()

    def __len__(self) -> int:
        """Return how many messages are taken and not acknowledged."""
        return sum(map(len, self._open.values()))

    def take(self, source: Source, offset: int, handle: Handle) -> None:
        """Know of a message; offsets of one source must ascend."""
        queue = self._open.get(source)
        if queue is None:
            queue = self._open[source] = deque()
        queue.append((offset, handle))

    def finish(self, places: Iterable[tuple[Source, int]]) -> list[Handle]:
        """Take note that messages are done with; return those that can be acknowledged now, in order.

        Places that were never taken, or are forgotten, change nothing.
        """
        done = {place for place in places if place[0] in self._open}
        self._done |= done
        out: list[Handle] = []
        for source in dict.fromkeys(source for source, _ in done):
            queue = self._open[source]
            while queue and (source, queue[0][0]) in self._done:
                offset, handle = queue.popleft()
                self._done.discard((source, offset))
                out.append(handle)
        return out

    def clear(self) -> None:
        """Forget everything: the sources are somebody else's."""
        self._open.clear()
        self._done.clear()
