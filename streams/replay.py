"""A recording through the same pipeline: the same events in the same order give the same alerts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from eacgm.config import Config
from eacgm.events import Event
from eacgm.schemas.recording import RecordingReader
from eacgm.streams.pipeline import Pipeline
from eacgm.streams.statistics import Statistics

#: events between two reports of progress
_REPORT_EVENTS = 2000


@dataclass(slots=True)
class Progress:
    """How far a replay is: events pushed, those left out, the event time reached (UTC ns) and the share read (0-1).

    ``share`` is None where the source does not know its size.
    """

    events: int = 0
    skipped: int = 0
    time_ns: int = 0
    share: float | None = None
    statistics: Statistics = field(default_factory=Statistics)


def replay(
    source: Iterable[Event],
    config: Config | None = None,
    *,
    since_ns: int | None = None,
    until_ns: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Iterator[Event]:
    """Yield the frames and alerts of a source's events, each as soon as it follows.

    Only events whose interval begins at or after ``since_ns`` and ends at or before ``until_ns`` (UTC ns) are pushed.
    ``source`` is a ``RecordingReader`` or any events in the order of publication. Raises what the source raises.
    """
    pipeline = Pipeline(config)
    progress = Progress()
    for event in source:
        if (since_ns is not None and event.start_ns < since_ns) or (until_ns is not None and event.end_ns > until_ns):
            progress.skipped += 1
        else:
            progress.events += 1
            progress.time_ns = max(progress.time_ns, event.end_ns)
            yield from pipeline.push(event)
        if on_progress is not None and (progress.events + progress.skipped) % _REPORT_EVENTS == 0:
            _report(progress, pipeline, source, on_progress)
    yield from pipeline.finish()
    if on_progress is not None:
        _report(progress, pipeline, source, on_progress)


def _report(
    progress: Progress, pipeline: Pipeline, source: Iterable[Event], on_progress: Callable[[Progress], None]
) -> None:
    progress.statistics = pipeline.statistics()
    if isinstance(source, RecordingReader) and source.total_bytes:
        progress.share = min(source.read_bytes / source.total_bytes, 1.0)
    on_progress(progress)
