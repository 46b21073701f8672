"""A backlog on disk that outlives its process: segments of records, the oldest segment dropped when there is no room.

A record is its body's length and CRC-32 (little-endian, four bytes each) and the body: topic, key and value by msgpack.
Segments are ``NUMBER.spool``, NUMBER being that of the first letter; ``position`` holds the number of the first letter
that has not arrived. What was written survives the process (kill -9), not the machine: nothing waits for the disk.
A record that is cut off or damaged ends its segment; the rest of it is counted as one loss, because nobody knows how
many letters it held.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import msgpack

from eacgm.errors import ConfigError
from eacgm.kafka.backlog import Letter, fitting

#: the limit is kept by whole segments; there are about so many
SEGMENTS = 16
LEAST_SEGMENT_BYTES = 64 * 1024
MOST_SEGMENT_BYTES = 16 * 1024 * 1024
#: bytes kept decoded at a time
_WINDOW_BYTES = 4 * 1024 * 1024
_HEAD = struct.Struct("<II")


@dataclass(slots=True)
class _Segment:
    path: Path
    first: int
    count: int
    size: int


class DiskBacklog:
    """Waits in a folder, for this process or for the next one; one process at a time."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        """Take up what lies in ``folder``, which is made if need be.

        Raises ``ConfigError`` for a folder that cannot be used, or that another process uses.
        """
        self._folder = folder
        self._most_bytes = most_bytes
        self._segment_bytes = min(max(most_bytes // SEGMENTS, LEAST_SEGMENT_BYTES), MOST_SEGMENT_BYTES)
        self.dropped = 0
        #: letters that could not be read again: a record was cut off or damaged
        self.damaged = 0
        #: why the last letter could not be kept, empty if it could
        self.complaint = ""
        self._open: FileIO | None = None
        #: the oldest letters, decoded
        self._window: deque[Letter] = deque()
        self._lock = _locked(folder)
        try:
            self._segments = self._find()
        except OSError as error:
            self._lock.close()
            raise _unusable(folder, error) from None
        self._first = self._read_position()
        self._forget_arrived()

    @property
    def first(self) -> int:
        """The number of the oldest letter, or of the next one if there is none."""
        return self._first

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(segment.size for segment in self._segments)

    def __len__(self) -> int:
        """Return how many letters wait."""
        return self._next() - self._first

    def append(self, letter: Letter) -> None:
        """Put a letter behind all others; the oldest segment makes room. One that cannot be written is dropped."""
        body = msgpack.packb([letter.topic, letter.key, letter.value])
        record = _HEAD.pack(len(body), zlib.crc32(body)) + body
        if len(record) > self._most_bytes:
            self.dropped += 1
            return
        try:
            self._make_room(len(record))
            segment, file = self._writable()
            if file.write(record) < len(record):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self.complaint = f"the spool {self._folder} takes no more: {error.strerror}"
            self.dropped += 1
            self._cut_off()
            return
        self.complaint = ""
        segment.size += len(record)
        segment.count += 1

    def head(self, most_bytes: int) -> list[Letter]:
        """Return the oldest letters, at least one if there are any, of about so many bytes; they stay."""
        if not self._window:
            self._load()
        window = list(self._window)
        return window[: fitting(window, most_bytes)]

    def remove_until(self, number: int) -> None:
        """Remove all letters before a number, and their segments once they are empty."""
        number = min(number, self._next())
        while self._first < number:
            self._first += 1
            if self._window:
                self._window.popleft()
        self._write_position()
        self._forget_arrived()

    def close(self) -> None:
        """Let go of the folder; what waits stays there."""
        self._close_segment()
        self._lock.close()

    def _next(self) -> int:
        return self._segments[-1].first + self._segments[-1].count if self._segments else self._first

    def _find(self) -> deque[_Segment]:
        found: list[_Segment] = []
        for path in sorted(self._folder.glob("*.spool")):
            if not path.stem.isdigit():
                continue
            ends, whole = _scan(path.read_bytes())
            self.damaged += not whole
            size = ends[-1] if ends else 0
            if not whole:
                os.truncate(path, size)
            found.append(_Segment(path, int(path.stem), len(ends), size))
        found.sort(key=lambda segment: segment.first)
        for before, after in pairwise(found):
            after.first = max(after.first, before.first + before.count)
        return deque(found)

    def _make_room(self, record_bytes: int) -> None:
        while self._segments and self.size + record_bytes > self._most_bytes:
            oldest = self._segments[0]
            if oldest is self._segments[-1]:
                self._close_segment()
            end = oldest.first + oldest.count
            self.dropped += max(end - max(self._first, oldest.first), 0)
            if self._first < end:
                self._first = end
                self._window.clear()
            oldest.path.unlink(missing_ok=True)
            self._segments.popleft()

    def _writable(self) -> tuple[_Segment, FileIO]:
        if self._open is not None and self._segments and self._segments[-1].size < self._segment_bytes:
            return self._segments[-1], self._open
        self._close_segment()
        number = self._next()
        path = self._folder / f"{number:020d}.spool"
        self._open = path.open("ab", buffering=0)
        segment = _Segment(path, number, 0, 0)
        self._segments.append(segment)
        return segment, self._open

    def _close_segment(self) -> None:
        file, self._open = self._open, None
        if file is not None:
            file.close()

    def _cut_off(self) -> None:
        """Leave no half a record behind: the next letter would stand where nobody finds it."""
        if self._open is not None:
            with contextlib.suppress(OSError):
                self._close_segment()
            with contextlib.suppress(OSError):
                os.truncate(self._segments[-1].path, self._segments[-1].size)

    def _load(self) -> None:
        """Decode the oldest letters; those that are not there any more, or are none, are passed over and counted."""
        while self._segments and not self._window:
            segment = self._segments[0]
            self._window.extend(_letters(segment.path, self._first - segment.first))
            if not self._window:
                end = segment.first + segment.count
                self.damaged += end - self._first
                self._first = end
                self._forget_arrived()

    def _forget_arrived(self) -> None:
        while self._segments and self._segments[0].first + self._segments[0].count <= self._first:
            gone = self._segments.popleft()
            if not self._segments:
                self._close_segment()
            with contextlib.suppress(OSError):
                gone.path.unlink(missing_ok=True)
        if self._segments and self._first < self._segments[0].first:
            self._first = self._segments[0].first  # what stood between was taken away by somebody else

    def _read_position(self) -> int:
        oldest = self._segments[0].first if self._segments else 0
        try:
            position = int((self._folder / "position").read_text())
        except (OSError, ValueError):
            return oldest
        if not self._segments:
            return max(position, 0)
        last = self._segments[-1]
        return position if oldest <= position <= last.first + last.count else oldest

    def _write_position(self) -> None:
        new = self._folder / "position.new"
        with contextlib.suppress(OSError):  # the worst that follows is that letters are sent twice
            new.write_text(str(self._first))
            new.replace(self._folder / "position")


def _locked(folder: Path) -> BinaryIO:
    """Return the open file that keeps others out of a folder; raises ``ConfigError``."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (folder / "lock").open("a+b")
    except OSError as error:
        raise _unusable(folder, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise ConfigError(f"the spool {folder} is used by another agent; give each its own folder") from None
    return lock


def _unusable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"the spool {folder} cannot be used: {error.strerror}; give a folder of our own")


def _scan(data: bytes) -> tuple[list[int], bool]:
    """Return where each record of a segment ends, and whether nothing else is in it."""
    ends: list[int] = []
    at = 0
    while at + _HEAD.size <= len(data):
        length, crc = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length
        # a record of zeros would have a checksum that fits
        if not length or end > len(data) or zlib.crc32(data[at + _HEAD.size : end]) != crc:
            return ends, False
        ends.append(end)
        at = end
    return ends, at == len(data)


def _letters(path: Path, begin: int) -> Iterator[Letter]:
    """Yield the letters of a segment from the one at ``begin`` on, about as many as are kept decoded at a time."""
    try:
        data = path.read_bytes()
    except OSError:
        return
    ends, _ = _scan(data)
    size = 0
    for start, end in zip([0, *ends][begin:], ends[begin:], strict=False):
        try:
            topic, key, value = msgpack.unpackb(data[start + _HEAD.size : end], max_bin_len=len(data))
            yield Letter(str(topic), bytes(key), bytes(value))
        except (ValueError, TypeError, msgpack.UnpackException):
            return
        size += end - start
        if size > _WINDOW_BYTES:
            return
