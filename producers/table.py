"""A long table of readings becomes events: one per rank and one-second window.

An event's interval is the window ``[floor(t), floor(t) + 1)`` in which its readings lie; all readings of a rank in a
window stand in one event, in the order of their times, each exactly once. Rows are expected in order of time; a row
may be up to one second older than the newest before it. Memory is bounded by two windows of readings.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

import numpy as np

from eacgm.events import IntArray, SamplesEvent
from eacgm.producers.table_rows import MAX_TEXT_CHARACTERS, Place, Rows, TextArray, read_rows

SECOND_NS = 1_000_000_000
#: how much older than the newest row before it a row may be
DISORDER_SECONDS = 1.0
#: readings that may wait for their window to end
MAX_OPEN_ROWS = 5_000_000


@dataclass(slots=True)
class ImportStatistics:
    """What an import has read and written so far; times are UTC ns of the first and last window."""

    readings: int = 0
    events: int = 0
    first_ns: int | None = None
    last_ns: int | None = None


def table_events(
    paths: Sequence[Path],
    job: str | None = None,
    statistics: ImportStatistics | None = None,
    on_block: Callable[[], None] = lambda: None,
) -> Iterator[SamplesEvent]:
    """Yield the events of one or several tables in order of time, numbered in that order.

    A row's job is its column ``job``, else ``job``, else the file's name. ``on_block`` is called after each block of
    rows. Raises ``InputError`` with file and line for what cannot be read.
    """
    told = statistics if statistics is not None else ImportStatistics()
    streams = [_file_events(path, job or job_of_file(path), told, on_block) for path in paths]
    merged = streams[0] if len(streams) == 1 else heapq.merge(*streams, key=attrgetter("start_ns"))
    for sequence, event in enumerate(merged):
        event.sequence = sequence
        told.events += 1
        told.first_ns = event.start_ns if told.first_ns is None else told.first_ns
        told.last_ns = event.end_ns
        yield event


def job_of_file(path: Path) -> str:
    """Return a file's name without its endings; what cannot be printed, or is no UTF-8, is an underscore.

    >>> job_of_file(Path("runs/llama-7b.csv.gz"))
    'llama-7b'
    """
    name = "".join(sign if sign.isprintable() else "_" for sign in path.name)[:MAX_TEXT_CHARACTERS]
    for ending in (".gz", ".csv", ".tsv", ".parquet"):
        name = name.removesuffix(ending)
    return name or path.name


def _file_events(
    path: Path, job: str, statistics: ImportStatistics, on_block: Callable[[], None]
) -> Iterator[SamplesEvent]:
    waiting: Rows | None = None
    newest = 0.0
    for block, place in read_rows(path):
        newest = _check_order(block, newest, place)
        statistics.readings += len(block.value)
        rows = block if waiting is None else _joined(waiting, block)
        # a row that may still come is at most so much older: all windows before that are complete
        closed = rows.time_s < np.floor(newest - DISORDER_SECONDS)
        yield from _window_events(_picked(rows, np.flatnonzero(closed)), job)
        waiting = _picked(rows, np.flatnonzero(~closed))
        if len(waiting.value) > MAX_OPEN_ROWS:
            message = f"more than {MAX_OPEN_ROWS:,} readings in two seconds; expected time_s to advance"
            raise place.error(0, message)
        on_block()
    if waiting is not None:
        yield from _window_events(waiting, job)


def _check_order(block: Rows, newest: float, place: Place) -> float:
    """Return the newest time so far; raise ``InputError`` at a row that came too late."""
    newest_before = np.maximum.accumulate(np.concatenate(([newest], block.time_s)))
    late = block.time_s < newest_before[:-1] - DISORDER_SECONDS
    if late.any():
        index = int(np.argmax(late))
        message = (
            f"time_s is {block.time_s[index]:.15g} after {newest_before[index]:.15g}; "
            f"expected rows sorted by time (at most {DISORDER_SECONDS:g} s apart)"
        )
        raise place.error(index, message)
    return float(newest_before[-1])


def _window_events(rows: Rows, default_job: str) -> Iterator[SamplesEvent]:
    if not len(rows.value):
        return
    window = np.floor(rows.time_s).astype(np.int64)
    jobs, job_code = _job_codes(rows.job, default_job, len(window))
    order = np.lexsort((rows.time_s, rows.rank, job_code, window))
    rows, window, job_code = _picked(rows, order), window[order], job_code[order]
    changed = (np.diff(window) != 0) | (np.diff(job_code) != 0) | (np.diff(rows.rank) != 0)
    starts = np.concatenate(([0], np.flatnonzero(changed) + 1))
    ends = np.append(starts[1:], len(window))
    for first, end in zip(starts.tolist(), ends.tolist(), strict=True):
        start_ns = int(window[first]) * SECOND_NS
        yield SamplesEvent(
            job=jobs[job_code[first]],
            node=_last_told(rows.node, first, end),
            rank=int(rows.rank[first]),
            start_ns=start_ns,
            end_ns=start_ns + SECOND_NS,
            published_ns=start_ns + SECOND_NS,
            group=_last_told(rows.group, first, end),
            phase=_last_told(rows.phase, first, end),
            name=rows.metric[first:end].tolist(),
            value=rows.value[first:end],
        )


def _job_codes(column: TextArray | None, default: str, n_rows: int) -> tuple[list[str], IntArray]:
    if column is None:
        return [default], np.zeros(n_rows, dtype=np.int64)
    named = [cell or default for cell in column.tolist()]
    code_of = {name: code for code, name in enumerate(sorted(set(named)))}
    return list(code_of), np.array([code_of[name] for name in named], dtype=np.int64)


def _last_told(column: TextArray | None, first: int, end: int) -> str:
    """Return the last non-empty cell of a stretch: one window has one node, group and phase."""
    if column is None:
        return ""
    last = column[end - 1]
    return last or next((cell for cell in reversed(column[first:end].tolist()) if cell), "")


def _picked(rows: Rows, index: IntArray) -> Rows:
    return replace(
        rows,
        time_s=rows.time_s[index],
        rank=rows.rank[index],
        metric=rows.metric[index],
        value=rows.value[index],
        job=None if rows.job is None else rows.job[index],
        node=None if rows.node is None else rows.node[index],
        group=None if rows.group is None else rows.group[index],
        phase=None if rows.phase is None else rows.phase[index],
    )


def _joined(first: Rows, second: Rows) -> Rows:
    return replace(
        second,
        time_s=np.concatenate((first.time_s, second.time_s)),
        rank=np.concatenate((first.rank, second.rank)),
        metric=np.concatenate((first.metric, second.metric)),
        value=np.concatenate((first.value, second.value)),
        job=_joined_texts(first.job, second.job),
        node=_joined_texts(first.node, second.node),
        group=_joined_texts(first.group, second.group),
        phase=_joined_texts(first.phase, second.phase),
    )


def _joined_texts(first: TextArray | None, second: TextArray | None) -> TextArray | None:
    # both come from one table: it has the column or it has not
    return None if first is None or second is None else np.concatenate((first, second))
