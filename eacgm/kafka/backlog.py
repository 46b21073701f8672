"""Messages that wait for a broker, the oldest first; beyond a size the oldest are dropped and counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Protocol


@dataclass(slots=True)
class Letter:
    """One encoded message: where it goes and what it says."""

    topic: str
    key: bytes
    value: bytes

    @property
    def size(self) -> int:
        """About how many bytes it takes to keep it."""
        return len(self.topic) + len(self.key) + len(self.value) + 64


class Backlog(Protocol):
    """What waits, in the order in which it was put; letters are numbered from 0 on, ``first`` is the oldest one's.

    ``dropped`` counts letters that found no room, or made room for newer ones.
    """

    dropped: int

    @property
    def first(self) -> int:
        """The number of the oldest letter, or of the next one if there is none."""
        ...

    def __len__(self) -> int:
        """Return how many letters wait."""
        ...

    def append(self, letter: Letter) -> None:
        """Put a letter behind all others; never fails."""
        ...

    def head(self, most_bytes: int) -> list[Letter]:
        """Return the oldest letters, at least one if there are any, of about so many bytes; they stay."""
        ...

    def remove_until(self, number: int) -> None:
        """Remove all letters before a number: they have arrived."""
        ...

    def close(self) -> None:
        """Let go; what waits stays where others can find it, if this backlog can do that."""
        ...


class MemoryBacklog:
    """Waits in memory and is gone with the process.

    >>> backlog = MemoryBacklog(most_bytes=200)
    >>> for value in (b"a", b"b", b"c"):
    ...     backlog.append(Letter("t", b"k", value))
    >>> [letter.value for letter in backlog.head(10**6)], backlog.first, backlog.dropped
    ([b'b', b'c'], 1, 1)
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._letters: deque[Letter] = deque()
        self._bytes = 0
        self._first = 0
        self.dropped = 0

    @property
    def first(self) -> int:
        """The number of the oldest letter, or of the next one if there is none."""
        return self._first

    def __len__(self) -> int:
        """Return how many letters wait."""
        return len(self._letters)

    def append(self, letter: Letter) -> None:
        """Put a letter behind all others; the oldest make room."""
        self._letters.append(letter)
        self._bytes += letter.size
        while self._bytes > self._most_bytes and self._letters:
            self._pop()
            self.dropped += 1

    def head(self, most_bytes: int) -> list[Letter]:
        """Return the oldest letters, at least one if there are any, of about so many bytes; they stay."""
        return list(islice(self._letters, fitting(self._letters, most_bytes)))

    def remove_until(self, number: int) -> None:
        """Remove all letters before a number."""
        while self._letters and self._first < number:
            self._pop()

    def close(self) -> None:
        """Nothing is kept."""

    def _pop(self) -> None:
        self._bytes -= self._letters.popleft().size
        self._first += 1


def fitting(letters: Iterable[Letter], most_bytes: int) -> int:
    """Return how many of the first letters are of so many bytes together, at least one."""
    size = 0
    for count, letter in enumerate(letters):
        size += letter.size
        if size > most_bytes:
            return max(count, 1)
    return 2**62
