"""The jobs that a worker holds: their pipelines, what of the topics each includes, and what a snapshot must cover.

The law that makes a killed worker harmless: a message is done with once a snapshot that includes it is written, and
a snapshot is written once everything that followed from what it includes is on its topics. A successor that loads the
snapshot skips the messages that it includes and works out the rest again; ids are deterministic, so what it says
twice is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgpack

from eacgm.config import Config
from eacgm.errors import InputError
from eacgm.events import Event
from eacgm.streams import snapshot
from eacgm.streams.pipeline import Pipeline

#: a topic and a partition's number
Source = tuple[str, int]
#: a message: where it stands, and its offset there
Handle = tuple[Source, int]


@dataclass(slots=True)
class _Holding:
    """One job: its pipeline, the last offset it includes of each topic-partition, and what no snapshot covers yet."""

    pipeline: Pipeline
    partition: int
    included: dict[Source, int] = field(default_factory=dict)
    #: the same, as of the last snapshot that was written
    saved: dict[Source, int] = field(default_factory=dict)
    handles: list[Handle] = field(default_factory=list)
    changed: bool = False
    #: the newest publication time (UTC ns) and the worker's clock when it came (ns)
    published_ns: int = 0
    seen_ns: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A job's snapshot and the handles of all messages it newly covers; ``payload`` None: the job is forgotten."""

    job: str
    partition: int
    payload: bytes | None
    handles: list[Handle]
    included: dict[Source, int]


class Holdings:
    """Pushes messages into their jobs' pipelines; pure: snapshots and clocks come in as arguments."""

    def __init__(self, config: Config, load: Callable[[str], bytes | None]) -> None:
        """Take how to ``load`` a job's last snapshot, asked for on first sight; None if there is none."""
        self._config = config
        self._load = load
        self._jobs: dict[str, _Holding] = {}
        #: messages that were skipped and are done with; whoever is done with them empties it
        self.covered: list[Handle] = []
        #: messages that a snapshot already included, and snapshots that could not be used
        self.skipped = 0
        self.unusable: list[str] = []

    def __len__(self) -> int:
        """Return how many jobs are held."""
        return len(self._jobs)

    def pipelines(self) -> Iterator[tuple[str, Pipeline]]:
        """Yield each job's name and pipeline."""
        for name, holding in self._jobs.items():
            yield name, holding.pipeline

    def push(self, source: Source, offset: int, event: Event, now_ns: int) -> list[Event]:
        """Take one message; return the frames and alerts that follow.

        Offsets of one topic-partition must ascend. A message that the job's snapshot includes is skipped, and is in
        ``covered`` if that snapshot is written.
        """
        holding = self._jobs.get(event.job) or self.open(event.job, source[1])
        if offset <= holding.included.get(source, -1):
            self.skipped += 1
            if offset <= holding.saved.get(source, -1):
                self.covered.append((source, offset))
            else:
                holding.handles.append((source, offset))
            return []
        holding.included[source] = offset
        holding.handles.append((source, offset))
        holding.changed = True
        published_ns = event.published_ns or event.end_ns
        if published_ns > holding.published_ns:
            holding.published_ns = published_ns
        holding.seen_ns = now_ns
        return holding.pipeline.push(event)

    def tick(self, now_ns: int, quiet_since: Callable[[int], int | None]) -> list[Event]:
        """Tell every job how late it is (the worker's clock, ns) and return the frames and alerts that follow.

        A job's time goes on from its newest publication by what has passed here since, so that an old stretch of
        topics is not closed by today's clock. ``quiet_since`` says for a partition since when all its messages have
        been taken, None if some wait: until then silence is ours and not the job's.
        """
        out: list[Event] = []
        for holding in self._jobs.values():
            quiet_ns = quiet_since(holding.partition)
            if holding.seen_ns and quiet_ns is not None:
                silent_ns = now_ns - max(holding.seen_ns, quiet_ns)
                events = holding.pipeline.tick(holding.published_ns + max(silent_ns, 0))
                holding.changed |= bool(events)
                out += events
        return out

    def open(self, job: str, partition: int, now_ns: int = 0) -> _Holding:
        """Hold a job from now on, from its snapshot if there is a usable one.

        A snapshot that cannot be used is told in ``unusable``, and the job begins anew.
        """
        holding = _Holding(Pipeline(self._config), partition)
        payload = self._load(job)
        if payload is not None:
            try:
                listed, published_ns, state = msgpack.unpackb(payload, max_bin_len=snapshot.MAX_BYTES)
                holding.pipeline.restore(state)
                included = {(topic, number): offset for topic, number, offset in listed}
            except (InputError, ValueError, TypeError, msgpack.UnpackException) as error:
                self.unusable.append(f"snapshot of job {job!r}: {error}")
                holding = _Holding(Pipeline(self._config), partition)
            else:
                holding.included, holding.saved = included, dict(included)
                holding.published_ns, holding.seen_ns = published_ns, now_ns
        self._jobs[job] = holding
        return holding

    def due(self) -> list[str]:
        """Return the jobs that have changed since their last checkpoint, the one with most to lose first."""
        changed = [(name, holding) for name, holding in self._jobs.items() if holding.changed or holding.handles]
        return [name for name, _ in sorted(changed, key=lambda entry: -len(entry[1].handles))]

    def checkpoint(self, job: str) -> Checkpoint:
        """Return what must be written before the messages it covers are done with; drop a job that is over."""
        holding = self._jobs[job]
        handles, holding.handles, holding.changed = holding.handles, [], False
        if holding.pipeline.statistics().jobs == 0:
            del self._jobs[job]
            return Checkpoint(job, holding.partition, None, handles, dict(holding.included))
        listed = [(topic, number, offset) for (topic, number), offset in holding.included.items()]
        # the pipeline's part is compressed already
        payload = msgpack.packb([listed, holding.published_ns, holding.pipeline.snapshot()])
        return Checkpoint(job, holding.partition, payload, handles, dict(holding.included))

    def written(self, checkpoint: Checkpoint) -> None:
        """Take note that a checkpoint is where a successor will find it."""
        holding = self._jobs.get(checkpoint.job)
        if holding is not None:
            holding.saved = checkpoint.included

    def forget(self, partition: int | None = None) -> None:
        """Drop the jobs of a partition, or all of them: somebody else holds them now."""
        gone = [name for name, holding in self._jobs.items() if partition is None or holding.partition == partition]
        for name in gone:
            del self._jobs[name]
        if partition is None:
            self.covered.clear()
