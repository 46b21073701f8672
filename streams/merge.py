"""Several sources in the order of publication, each source's own order kept.

A job's events arrive by several topics that are read at different speeds: after a restart the worker may have a
minute of one topic in hand before the first message of another. Pushed as they come, the slower topic's events would
be late. So an event waits until no source that lags could still bring an older one.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

Source = TypeVar("Source", bound=Hashable)
Item = TypeVar("Item")


class Merge(Generic[Source, Item]):
    """Items of several sources, handed out oldest first.

    >>> merge = Merge[str, str](most_items=100)
    >>> merge.add("calls", 5, "c5")
    >>> merge.add("host", 3, "h3")
    >>> list(merge.release(lambda source: source == "host"))
    ['h3']
    >>> list(merge.release(lambda source: False))
    ['c5']
    """

    def __init__(self, most_items: int) -> None:
        """Hold at most ``most_items``: beyond that the oldest goes without waiting any longer."""
        self._most_items = most_items
        self._queues: dict[Source, deque[tuple[int, Item]]] = {}
        self._size = 0
        #: items handed out though a source that lags could still bring older ones
        self.hurried = 0

    def __len__(self) -> int:
        """Return how many items wait."""
        return self._size

    def expect(self, source: Source) -> None:
        """Know of a source before its first item."""
        self._queues.setdefault(source, deque())

    def add(self, source: Source, published_ns: int, item: Item) -> None:
        """Put an item behind the others of its source."""
        queue = self._queues.get(source)
        if queue is None:
            queue = self._queues[source] = deque()
        queue.append((published_ns, item))
        self._size += 1

    def release(self, lags: Callable[[Source], bool], *, impatient: bool = False) -> Iterator[Item]:
        """Yield what need not wait: the oldest item in front, again and again.

        An empty source holds the others up as long as it ``lags``, which means that messages of it are known to exist
        that have not come yet. ``impatient`` waits for nobody.
        """
        held_up = not impatient and any(not queue and lags(source) for source, queue in self._queues.items())
        sources = list(self._queues.items())
        # of equals, the source known first goes first
        heads = [(queue[0][0], place) for place, (_, queue) in enumerate(sources) if queue]
        heapq.heapify(heads)
        while heads and not (held_up and self._size <= self._most_items):
            place = heads[0][1]
            source, queue = sources[place]
            self._size -= 1
            self.hurried += held_up
            yield queue.popleft()[1]
            if queue:
                heapq.heapreplace(heads, (queue[0][0], place))
            else:
                heapq.heappop(heads)
                held_up = held_up or (not impatient and lags(source))

    def forget(self, source: Source) -> None:
        """Drop a source and what waits of it."""
        self._size -= len(self._queues.pop(source, ()))
