"""A recording through the same pipeline: the same events in the same order give the same alerts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from eacgm.config import Config
from eacgm.events import Event, ProcessEvent
from eacgm.streams.pipeline import Pipeline
from eacgm.streams.statistics import Statistics

#: identities are told again within this time
IDENTITY_NS = 60_000_000_000
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
    job: str | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Iterator[Event]:
    """Yield the frames and alerts of a source's events, each as soon as it follows.

    Only events whose interval begins at or after ``since_ns`` and ends at or before ``until_ns`` (UTC ns) are pushed,
    and of one ``job`` if it is given; who the processes are is taken from before ``since_ns`` too. ``source`` is a
    ``RecordingReader``, a ``Stretch`` or any events in the order of publication. Raises what the source raises.
    """
    pipeline = Pipeline(config)
    progress = Progress()
    identities = _Identities(since_ns)
    for event in source:
        if job is not None and event.job != job:
            progress.skipped += 1
        elif (since_ns is not None and event.start_ns < since_ns) or (until_ns is not None and event.end_ns > until_ns):
            progress.skipped += 1
            identities.note(event)
        else:
            for known in identities.told_anew(event):
                yield from pipeline.push(known)
            progress.events += 1
            progress.time_ns = max(progress.time_ns, event.end_ns)
            yield from pipeline.push(event)
        if on_progress is not None and (progress.events + progress.skipped) % _REPORT_EVENTS == 0:
            _report(progress, pipeline, source, on_progress)
    yield from pipeline.finish()
    if on_progress is not None:
        _report(progress, pipeline, source, on_progress)


class _Identities:
    """Who the processes were shortly before a stretch: they tell it only twice a minute."""

    def __init__(self, since_ns: int | None) -> None:
        self._since_ns = since_ns or 0
        self._known: dict[tuple[str, str, int], ProcessEvent] = {}

    def note(self, event: Event) -> None:
        """Remember an event from before the stretch if it tells of a process that may still run in it."""
        if not isinstance(event, ProcessEvent) or event.end_ns > self._since_ns:
            return
        process = (event.job, event.node, event.pid)
        if event.state != "running" or event.end_ns < self._since_ns - IDENTITY_NS:
            self._known.pop(process, None)
        else:
            self._known[process] = event

    def told_anew(self, first: Event) -> list[Event]:
        """Return what is known as if it were told when the stretch begins, once."""
        known, self._known = self._known, {}
        return [
            replace(event, start_ns=first.start_ns, end_ns=first.start_ns, published_ns=first.published_ns)
            for event in known.values()
        ]


def _report(
    progress: Progress, pipeline: Pipeline, source: Iterable[Event], on_progress: Callable[[Progress], None]
) -> None:
    progress.statistics = pipeline.statistics()
    progress.share = getattr(source, "share", None)
    on_progress(progress)
