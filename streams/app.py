"""The pipeline on Kafka: a Faust application whose agent only reads; windows, joins and models are our own.

Faust gives the consumer group, the changelogged table and the acknowledgements. Its windows and joins are not used:
they expire by the wall clock (docs/decisions/0042).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from faust.types import TP

from eacgm.config import Config
from eacgm.errors import EacgmError, RegistryError
from eacgm.events import DeadLetterEvent, Event
from eacgm.streams.acknowledgements import Acknowledgements
from eacgm.streams.application import application, partition_of, raw_topic
from eacgm.streams.continuity import Continuity, Verdict
from eacgm.streams.deliveries import arrival
from eacgm.streams.holdings import Checkpoint, Handle, Holdings, Source
from eacgm.streams.intake import INPUT_TOPICS, Intake
from eacgm.streams.merge import Merge
from eacgm.streams.outputs import Outputs
from eacgm.streams.wire import Wire

log = logging.getLogger(__name__)

TABLE = "snapshots"
#: messages of one partition number that may wait for a slower topic
MOST_WAITING = 50_000
#: nothing came and nothing was handed out for so long though something waits: the slow topic is given up on
PATIENCE_SECONDS = 15.0
DRAIN_SECONDS = 0.1
#: seconds between two rounds of snapshots, and the share of time that they may take
CHECKPOINT_SECONDS = 2.0
CHECKPOINT_SHARE = 0.1
REGISTRY_SECONDS = 2.0
#: what the last snapshots may take once the worker is told to end
PARTING_SECONDS = 15.0
#: nothing read for so long though messages wait: they were handed out before we knew where to begin
MISSED_SECONDS = 3.0
#: nothing read for so long though messages wait: whoever looks after us should start us anew
STUCK_SECONDS = 60.0


class FleetShell:
    """One worker: what it holds, and the Faust application that feeds it."""

    def __init__(self, wire: Wire, *, group: str, config: Config, folder: Path) -> None:
        """Connect nothing yet; ``folder`` is one that Faust may make its own, empty ones in."""
        self._wire = wire
        self.app = application(wire, group, folder)
        self.intake = Intake(wire.decode)
        self.holdings: Holdings = Holdings(config, self._load)
        self._acknowledgements: Acknowledgements[Source] = Acknowledgements()
        self._merges: dict[int, Merge[str, tuple[TP, int, Event]]] = {}
        self._assigned: set[TP] = set()
        #: since when (ns) nothing of a partition waits, neither here nor on its topics
        self._quiet_ns: dict[int, int] = {}
        self._continuity: Continuity[TP] = Continuity({})
        self._progress_seconds = time.monotonic()
        self.outputs = Outputs(self.app, wire)
        #: where a successor would begin, as far as the brokers do not know it yet
        self._positions: dict[Source, int] = {}
        self._epoch = 0
        #: whether the table holds what was written of our partitions, and whether their jobs were taken up from it
        self._recovered = self._ready = False
        #: one round of snapshots at a time: an older one must not overtake a newer one
        self._writing = asyncio.Lock()
        self.n_checkpoints = self.n_messages = 0
        self.checkpoint_seconds = 0.0
        self._table: Any = self.app.Table(
            TABLE,
            default=bytes,
            key_type=bytes,
            value_type=bytes,
            partitions=wire.n_partitions,
            use_partitioner=True,
        )
        self._table.on_recover(self._recover)
        self.app.agent(raw_topic(self.app, *INPUT_TOPICS, acks=False), concurrency=1, name="intake")(self._take)
        self.app.parting = self._part
        self.app.task(self._drain_for_ever)
        self.app.task(self._checkpoint_for_ever)
        revoked: Any = self.app.on_partitions_revoked
        revoked.connect(self._forget)
        assigned: Any = self.app.on_partitions_assigned
        assigned.connect(self._expect)

    async def _forget(self, app: Any, revoked: set[TP], **_: Any) -> None:
        """Let go of everything: what was not acknowledged comes again, here or at another worker."""
        self._epoch += 1
        self._recovered = self._ready = False
        self.holdings.forget()
        self._merges.clear()
        self._acknowledgements.clear()
        self._assigned.clear()
        self._quiet_ns.clear()
        self._continuity = Continuity({})
        self.outputs.forget()
        self._positions.clear()

    async def _expect(self, app: Any, assigned: set[TP], **_: Any) -> None:
        self._progress_seconds = time.monotonic()
        self._assigned = {source for source in assigned if source.topic in INPUT_TOPICS}
        for source in self._assigned:
            self._merge(source.partition).expect(source.topic)

    def _merge(self, partition: int) -> Merge[str, tuple[TP, int, Event]]:
        merge = self._merges.get(partition)
        if merge is None:
            merge = self._merges[partition] = Merge(MOST_WAITING)
        return merge

    def _load(self, job: str) -> bytes | None:
        return self._table.data.get(job.encode()) or None

    async def _recover(self) -> None:
        self._recovered = True
        await self._begin()

    async def _begin(self) -> None:
        """Find where our topic-partitions go on, and take up their jobs, also those of which nothing new comes.

        Nothing is done as long as the table is not recovered or we do not know which partitions are ours.
        """
        epoch = self._epoch
        if not (self._assigned and self._recovered):
            return
        starts = await asyncio.to_thread(self._wire.starts, list(self._assigned))
        if epoch != self._epoch or self._ready:
            return
        self._continuity = Continuity({TP(*source): offset for source, offset in starts.items()})
        self._ready = True
        now_ns = time.monotonic_ns()
        self._progress_seconds = time.monotonic()
        for key in list(self._table.data):
            partition = partition_of(key, self._wire.n_partitions)
            if partition in self._merges and self._table.data.get(key):
                self.holdings.open(key.decode(), partition, now_ns)

    async def _take(self, stream: Any) -> None:
        async for event in stream.noack().events():
            if not self._ready:
                await self._begin()
            # messages that are dropped here are missed, and sought, as soon as we know where their topic goes on
            records = event.message.value
            source = TP(records[0].topic, records[0].partition)
            epoch = self._epoch
            taken = await self._in_turn(source, records)
            if taken and epoch == self._epoch:
                await self._read(source, taken)

    async def _in_turn(self, source: TP, records: list[Any]) -> list[Any]:
        """Return those of a topic-partition's records that are the next ones; before a gap seek what is missing."""
        first, last = records[0].offset, records[-1].offset
        if last - first + 1 != len(records) or not self._continuity.follow(source, first, last):
            verdicts = [(record, self._continuity.judge(source, record.offset)) for record in records]
            if any(verdict is Verdict.SEEK for _, verdict in verdicts):
                await self.app.consumer.seek(source, self._continuity.expected(source) or 0)
            records = [record for record, verdict in verdicts if verdict is Verdict.TAKE]
        return records

    async def _read(self, source: TP, records: list[Any]) -> None:
        """Decode messages and put them in line; wait as long as the registry that explains them is away."""
        epoch = self._epoch
        self._acknowledgements.take(source, [record.offset for record in records])
        self.n_messages += len(records)
        self._progress_seconds = time.monotonic()
        while True:
            try:
                events = self.intake.read(source, records, time.time_ns())
                break
            except RegistryError as error:
                log.warning("%s; waiting for it", error)
                await asyncio.sleep(REGISTRY_SECONDS)
                if epoch != self._epoch:
                    return
        merge = self._merge(source.partition)
        for record, event in zip(records, events, strict=True):
            if isinstance(event, DeadLetterEvent):
                # its time says nothing: it must not hold up what stands behind it
                self.outputs.send(event, (source, record.offset))
            else:
                merge.add(source.topic, event.published_ns or event.end_ns, (source, record.offset, event))
        self._drain(source.partition)

    @property
    def n_hurried(self) -> int:
        """Messages that did not wait for a slower topic."""
        return sum(merge.hurried for merge in list(self._merges.values()))

    @property
    def n_open(self) -> int:
        """Messages taken that no snapshot covers yet."""
        return len(self._acknowledgements)

    def lag(self) -> dict[str, int]:
        """Return by input topic how many messages of our partitions were not read yet."""
        lag = dict.fromkeys(INPUT_TOPICS, 0)
        for partition in list(self._merges):
            for topic in INPUT_TOPICS:
                lag[topic] += self._behind(topic, partition) or 0
        return lag

    def ailment(self) -> str | None:
        """Return why this worker is not healthy, None if it is: it reads nothing though messages wait."""
        still_seconds = time.monotonic() - self._progress_seconds
        waiting = sum(self.lag().values())
        if waiting and still_seconds > STUCK_SECONDS:
            return f"nothing was read for {still_seconds:.0f} s though {waiting} messages wait"
        return None

    def _consumer(self) -> Any:
        return self.app.consumer

    def _behind(self, topic: str, partition: int) -> int | None:
        """Return how many messages of a topic-partition have not come yet, None if it was not asked for yet."""
        source = TP(topic, partition)
        try:
            end: int | None = self._consumer().highwater(source)
        except Exception:  # noqa: BLE001 - not assigned (any more): nothing to wait for
            return 0
        if end is None:
            return None
        return max(end - (self._continuity.expected(source) or 0), 0)

    def _lags(self, topic: str, partition: int) -> bool:
        return self._behind(topic, partition) != 0

    async def _drain_for_ever(self) -> None:
        while not self.app.should_stop:
            await asyncio.sleep(DRAIN_SECONDS)
            if self._ready:
                self._drain_all()
            else:
                await self._begin()

    def _drain_all(self) -> None:
        waiting = any(len(merge) for merge in self._merges.values())
        impatient = waiting and time.monotonic() - self._progress_seconds > PATIENCE_SECONDS
        for partition in list(self._merges):
            self._drain(partition, impatient=impatient)

    def _drain(self, partition: int, *, impatient: bool = False) -> None:
        now_ns = time.monotonic_ns()
        merge = self._merge(partition)
        push, n_before = self.holdings.push, len(merge)
        for source, offset, event in merge.release(lambda topic: self._lags(topic, partition), impatient=impatient):
            for out in push(source, offset, event, now_ns):
                self.outputs.send(out)
        if len(merge) < n_before:
            self._progress_seconds = time.monotonic()
        if self.holdings.covered:
            covered, self.holdings.covered = self.holdings.covered, []
            self._finish(covered)

    async def _checkpoint_for_ever(self) -> None:
        while not self.app.should_stop:
            began = time.monotonic()
            ill = self.ailment()
            if ill is not None:
                raise EacgmError(f"{ill}; start this worker anew")
            if self._ready:
                await self._seek_what_is_missed()
                self._note_quiet()
                for out in self.holdings.tick(time.monotonic_ns(), self._quiet_ns.get):
                    self.outputs.send(out)
                await self.checkpoint()
            took = time.monotonic() - began
            self.checkpoint_seconds += took
            await asyncio.sleep(max(CHECKPOINT_SECONDS, took / CHECKPOINT_SHARE))

    def _note_quiet(self) -> None:
        now_ns = time.monotonic_ns()
        for partition, merge in self._merges.items():
            if len(merge) or any(self._lags(topic, partition) for topic in INPUT_TOPICS):
                self._quiet_ns.pop(partition, None)
            else:
                self._quiet_ns.setdefault(partition, now_ns)

    async def _seek_what_is_missed(self) -> None:
        """Ask again for messages that wait on their topics and do not come."""
        if time.monotonic() - self._progress_seconds < MISSED_SECONDS:
            return
        for source in self._assigned:
            if self._behind(*source):
                await self.app.consumer.seek(source, self._continuity.expected(source) or 0)

    async def _part(self) -> None:
        """Write snapshots of all that was taken before the topics are let go: nobody need do it again."""
        if not self._ready:
            return
        self._drain_all()
        try:
            await asyncio.wait_for(self.checkpoint(), PARTING_SECONDS)
        except (EacgmError, TimeoutError) as error:
            log.warning("ended without its last snapshots (%s): whoever goes on works some messages out again", error)

    async def checkpoint(self) -> None:
        """Write the snapshot of every job that has changed, once all that it led to is delivered; then acknowledge."""
        async with self._writing:
            await self._checkpoint()

    async def _checkpoint(self) -> None:
        epoch = self._epoch
        self._finish(await self.outputs.arrived())
        for job in self.holdings.due():
            if epoch != self._epoch:
                return
            point = self.holdings.checkpoint(job)
            self._finish(await self.outputs.arrived())
            if epoch != self._epoch:
                return  # somebody else may have gone on already: an older snapshot must not follow a newer one
            await self._write(point)
            if epoch == self._epoch:
                self.holdings.written(point)
                self._finish(point.handles)
                self.n_checkpoints += 1
        await self._commit(epoch)

    def _finish(self, handles: Iterable[Handle]) -> None:
        self._positions.update(self._acknowledgements.finish(handles))

    async def _commit(self, epoch: int) -> None:
        """Tell the brokers where a successor would begin."""
        if epoch == self._epoch and self._positions:
            positions, self._positions = self._positions, {}
            await self._consumer()._commit(positions)

    async def _write(self, point: Checkpoint) -> None:
        key = point.job.encode()
        delivery = self._table.send_changelog(None, key, point.payload, value_serializer="raw")
        if point.payload is None:
            self._table.data.pop(key, None)
        else:
            self._table.data[key] = point.payload
        await arrival(delivery, f"snapshot of job {point.job!r}")
