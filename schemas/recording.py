"""Recordings: a folder ``<topic>/<partition>/*.avro`` of Avro object-container files.

Any Avro tool reads them. The writer ends a block at least once a second of writing, so that a killed recorder loses
no more; the reader merges all files in the order of publication and holds one block of each in memory.
"""

from __future__ import annotations

import heapq
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import fastavro
import fastavro.write

from eacgm.errors import DecodeError, InputError
from eacgm.events import EVENT_OF_TOPIC, Event
from eacgm.schemas.codec import from_record, to_record
from eacgm.schemas.store import schema_of

#: a block is closed when it holds this much, or when this long has passed since the last one
BLOCK_BYTES = 256 * 1024
FLUSH_SECONDS = 1.0
MAGIC = b"Obj\x01"


class RecordingWarning(UserWarning):
    """A file of a recording was readable only in part; the text names the file and the place."""


class RecordingWriter:
    """Writes events into a new recording.

    Raises ``InputError`` if the folder exists and is not empty (nothing is overwritten unasked) or cannot be made.
    """

    def __init__(
        self, folder: Path, *, partition: int = 0, clock_seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self.folder = folder
        self._partition = partition
        self._clock_seconds = clock_seconds
        self._files: dict[str, tuple[BinaryIO, fastavro.write.Writer]] = {}
        self._flushed_seconds = clock_seconds()
        self.count = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            occupied = any(folder.iterdir())
        except OSError as error:
            reason = error.strerror
            raise InputError(f"no folder for a recording can be made here ({reason})", path=str(folder)) from None
        if occupied:
            raise InputError("is not empty; a recording needs a new or an empty folder", path=str(folder))

    def write(self, event: Event) -> None:
        """Append one event; blocks of all files are flushed once a second."""
        entry = self._files.get(event.topic) or self._open(event.topic)
        entry[1].write(to_record(event))
        self.count += 1
        now_seconds = self._clock_seconds()
        if now_seconds - self._flushed_seconds >= FLUSH_SECONDS:
            self.flush(now_seconds)

    def flush(self, now_seconds: float | None = None) -> None:
        """Put everything written so far into the files."""
        self._flushed_seconds = self._clock_seconds() if now_seconds is None else now_seconds
        for stream, writer in self._files.values():
            writer.flush()
            stream.flush()

    def close(self) -> None:
        """Flush and close all files."""
        self.flush()
        for stream, _ in self._files.values():
            stream.close()
        self._files.clear()

    def _open(self, topic: str) -> tuple[BinaryIO, fastavro.write.Writer]:
        path = self.folder / topic / str(self._partition) / "00000000.avro"
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("xb")
        writer = fastavro.write.Writer(stream, schema_of(topic).parsed, codec="deflate", sync_interval=BLOCK_BYTES)
        self._files[topic] = (stream, writer)
        return stream, writer

    def __enter__(self) -> RecordingWriter:
        """Return the writer itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close all files."""
        self.close()


class RecordingReader:
    """Reads a recording: iterating yields its events in the order of publication.

    Files are merged by ``(published_ns, sequence)``; the order inside a file is kept. A file that was cut off is read
    as far as it goes, with a ``RecordingWarning``. Raises ``InputError`` for a folder without a recording, a file
    that is no Avro container, one whose messages are not ours, and what may not be looked into.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.is_dir():
            raise InputError("no such folder; expected a recording (<topic>/<partition>/*.avro)", path=str(folder))
        self.files = _files(folder)
        if not self.files:
            raise InputError("no recording here; expected <topic>/<partition>/*.avro", path=str(folder))
        #: bytes of all files, and of those read so far
        self.total_bytes = sum(path.stat().st_size for path in self.files)
        self.read_bytes = 0
        self.count = 0

    @property
    def share(self) -> float | None:
        """How much of the recording has been read (0-1), None if nobody can know."""
        return min(self.read_bytes / self.total_bytes, 1.0) if self.total_bytes else None

    def __iter__(self) -> Iterator[Event]:
        """Yield every event, oldest publication first; raises ``InputError`` if there is none."""
        self.count = self.read_bytes = 0
        streams = [_ordered(self._file(path), number) for number, path in enumerate(self.files)]
        for _, _, _, _, event in heapq.merge(*streams):
            self.count += 1
            yield event
        if self.count == 0:
            raise InputError("the recording holds no event", path=str(self.folder))

    def _file(self, path: Path) -> Iterator[Event]:
        topic = path.relative_to(self.folder).parts[0]
        if topic not in EVENT_OF_TOPIC:
            raise InputError(f"unknown topic {topic!r}; expected one of {', '.join(EVENT_OF_TOPIC)}", path=str(path))
        count = done_bytes = 0
        n_refused, first_refusal = 0, ""
        with path.open("rb") as stream:
            for block, at_bytes in self._blocks(path, stream, topic):
                self.read_bytes += stream.tell() - done_bytes
                done_bytes = stream.tell()
                try:
                    for record in block:
                        try:
                            yield from_record(topic, record)
                            count += 1
                        except DecodeError as error:
                            n_refused += 1
                            first_refusal = first_refusal or f"record {count + n_refused}: {error}"
                except Exception as error:  # noqa: BLE001 - fastavro raises whatever the bytes provoke
                    _warn(path, at_bytes, count, error)
                    break
        if n_refused:
            told = "1 record is no event and is" if n_refused == 1 else f"{n_refused:,} records are no events and are"
            message = f"{path}: {told} left out, the first: {first_refusal}"
            warnings.warn(message, RecordingWarning, stacklevel=2)

    def _blocks(self, path: Path, stream: BinaryIO, topic: str) -> Iterator[tuple[Any, int]]:
        """Yield each block with the offset at which it begins; stop with a warning where the file was cut off."""
        if path.stat().st_size == 0:
            _warn(path, 0, 0, EOFError("empty file"))
            return
        if stream.read(len(MAGIC)) != MAGIC:
            raise InputError("is no Avro object-container file (begins with other bytes than 'Obj' 1)", path=str(path))
        stream.seek(0)
        try:
            blocks = fastavro.block_reader(stream, schema_of(topic).parsed)
        except Exception as error:  # noqa: BLE001 - fastavro raises whatever the bytes provoke
            if stream.read(1) == b"":
                _warn(path, 0, 0, error)
                return
            raise InputError(f"no {topic} recording ({_reason(error)})", path=str(path)) from None
        ours, theirs = schema_of(topic).parsed["name"], _record_name(blocks.writer_schema)
        if theirs != ours:
            raise InputError(f"no {topic} recording: it holds {theirs}, expected {ours}", path=str(path))
        count = 0
        while True:
            at_bytes = stream.tell()
            try:
                block = next(blocks)
            except StopIteration:
                return
            except Exception as error:  # noqa: BLE001 - fastavro raises whatever the bytes provoke
                _warn(path, at_bytes, count, error)
                return
            count += block.num_records
            yield block, at_bytes


def _files(folder: Path) -> list[Path]:
    """Return a recording's files; raises ``InputError`` for what may not be looked into, or is a pipe or a device."""
    try:
        # Path.glob would leave out what may not be read, and a topic be missing without a word
        found = sorted(path for topic in _folders(folder) for part in _folders(topic) for path in part.iterdir())
        files = [path for path in found if path.suffix == ".avro"]
        odd = [path for path in files if path.exists() and not (path.is_file() or path.is_dir())]
    except OSError as error:
        path = str(error.filename or folder)
        raise InputError(f"cannot be read ({error.strerror}); expected a recording", path=path) from None
    if odd:
        raise InputError("is no ordinary file; expected an Avro file of a recording", path=str(odd[0]))
    return files


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()]


def _record_name(schema: Any) -> str:
    return str(schema.get("name", "no record")) if isinstance(schema, dict) else "no record"


def _reason(error: Exception) -> str:
    """Return an error of fastavro's in one short line; it may quote whole schemas."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:100]}" if text else type(error).__name__


def _warn(path: Path, at_bytes: int, count: int, error: Exception) -> None:
    message = (
        f"{path}: byte {at_bytes}: cut off or damaged after {count} events ({_reason(error)}); the rest is left out"
    )
    warnings.warn(RecordingWarning(message), stacklevel=2)


def _ordered(events: Iterator[Event], number: int) -> Iterator[tuple[int, int, int, int, Event]]:
    # a producer's clock may step back: the running maximum keeps each file's own order
    newest = (0, 0)
    for place, event in enumerate(events):
        newest = max(newest, (event.published_ns, event.sequence))
        yield (*newest, number, place, event)
