"""The pipeline on Kafka: a Faust application whose agent only reads; windows, joins and models are our own.

Faust gives the consumer group, the changelogged table and the acknowledgements. Its windows and joins are not used:
they expire by the wall clock (docs/decisions/0042).
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import faust
from aiokafka.partitioner import murmur2
from faust.types import TP

from eacgm.config import Config
from eacgm.errors import EacgmError, RegistryError
from eacgm.events import AlertEvent, DeadLetterEvent, Event, FrameEvent
from eacgm.streams.acknowledgements import Acknowledgements
from eacgm.streams.continuity import Continuity, Verdict
from eacgm.streams.holdings import Checkpoint, Holdings, Place
from eacgm.streams.intake import INPUT_TOPICS, Intake
from eacgm.streams.merge import Merge
from eacgm.streams.wire import Wire

#: a message: its topic-partition and offset
Handle = tuple[TP, int]

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
DELIVERY_SECONDS = 30.0
REGISTRY_SECONDS = 2.0
#: nothing read for so long though messages wait: they were handed out before we knew where to begin
MISSED_SECONDS = 3.0
#: nothing read for so long though messages wait: whoever looks after us should start us anew
STUCK_SECONDS = 60.0
#: messages taken between two drains of the merge
BATCH_MESSAGES = 512


class FleetShell:
    """One worker: what it holds, and the Faust application that feeds it."""

    def __init__(self, wire: Wire, *, group: str, config: Config) -> None:
        self._wire = wire
        self.app = _application(wire, group)
        self.intake = Intake(wire.decode)
        self.holdings: Holdings[Handle] = Holdings(config, self._load)
        self._acknowledgements: Acknowledgements[TP, Any] = Acknowledgements()
        self._merges: dict[int, Merge[str, tuple[Place, Event]]] = {}
        self._assigned: set[TP] = set()
        #: since when (ns) nothing of a partition waits, neither here nor on its topics
        self._quiet_ns: dict[int, int] = {}
        self._continuity: Continuity[TP] = Continuity({})
        self._progress_seconds = time.monotonic()
        #: what was sent since the last checkpoint: futures of its delivery, and the message that is then done with
        self._sent: list[tuple[Any, Handle | None]] = []
        self._epoch = 0
        self._ready = False
        self.n_alerts = self.n_frames = self.n_checkpoints = self.n_messages = 0
        self.checkpoint_seconds = 0.0
        self._outputs = {
            FrameEvent.topic: self._raw(FrameEvent.topic),
            AlertEvent.topic: self._raw(wire.alerts_topic),
            DeadLetterEvent.topic: self._raw(DeadLetterEvent.topic),
        }
        self._table: Any = self.app.Table(
            TABLE,
            default=bytes,
            key_type=bytes,
            value_type=bytes,
            partitions=wire.n_partitions,
            use_partitioner=True,
        )
        self._table.on_recover(self._begin)
        self.app.agent(self._raw(*INPUT_TOPICS), concurrency=1, name="intake")(self._take)
        self.app.task(self._drain_for_ever)
        self.app.task(self._checkpoint_for_ever)
        revoked: Any = self.app.on_partitions_revoked
        revoked.connect(self._forget)
        assigned: Any = self.app.on_partitions_assigned
        assigned.connect(self._expect)

    def _raw(self, *names: str) -> Any:
        raw: dict[str, Any] = {
            "key_type": bytes,
            "value_type": bytes,
            "key_serializer": "raw",
            "value_serializer": "raw",
        }
        return self.app.topic(*names, partitions=self._wire.n_partitions, **raw)

    async def _forget(self, app: Any, revoked: set[TP], **_: Any) -> None:
        """Let go of everything: what was not acknowledged comes again, here or at another worker."""
        self._epoch += 1
        self._ready = False
        self.holdings.forget()
        self._merges.clear()
        self._acknowledgements.clear()
        self._assigned.clear()
        self._quiet_ns.clear()
        self._continuity = Continuity({})
        self._sent.clear()

    async def _expect(self, app: Any, assigned: set[TP], **_: Any) -> None:
        self._progress_seconds = time.monotonic()
        self._assigned = {source for source in assigned if source.topic in INPUT_TOPICS}
        for source in self._assigned:
            self._merge(source.partition).expect(source.topic)

    def _merge(self, partition: int) -> Merge[str, tuple[Place, Event]]:
        merge = self._merges.get(partition)
        if merge is None:
            merge = self._merges[partition] = Merge(MOST_WAITING)
        return merge

    def _load(self, job: str) -> bytes | None:
        return self._table.data.get(job.encode()) or None

    async def _begin(self) -> None:
        """Find where our topic-partitions go on, and take up their jobs, also those of which nothing new comes.

        The table must have been recovered, which it is before the first message comes.
        """
        epoch = self._epoch
        if not self._assigned:
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
            # a message that is dropped here is missed, and sought, as soon as we know where its topic goes on
            message = event.message
            place = Place(message.topic, message.partition, message.offset)
            source = TP(message.topic, message.partition)
            verdict = self._continuity.judge(source, message.offset)
            if verdict is not Verdict.TAKE:
                if verdict is Verdict.SEEK:
                    await self.app.consumer.seek(source, self._continuity.expected(source) or 0)
                continue
            self._acknowledgements.take(source, message.offset, event)
            self.n_messages += 1
            self._progress_seconds = time.monotonic()
            epoch = self._epoch
            read = await self._read(place, message.key, message.value)
            if epoch != self._epoch:
                continue
            if isinstance(read, DeadLetterEvent):
                # its time says nothing: it must not hold up what stands behind it
                self._sent.append((self._send(read), (source, message.offset)))
                continue
            self._merge(place.partition).add(place.topic, read.published_ns or read.end_ns, (place, read))
            if self.n_messages % BATCH_MESSAGES == 0:
                self._drain(place.partition)

    async def _read(self, place: Place, key: bytes | None, value: bytes | None) -> Event:
        """Return a message's event or its dead letter; wait as long as the registry that explains it is away."""
        while True:
            try:
                return self.intake.read(place, key, value, time.time_ns())
            except RegistryError as error:
                log.warning("%s; waiting for it", error)
                await asyncio.sleep(REGISTRY_SECONDS)

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
            elif self._assigned:
                await self._begin()

    def _drain_all(self) -> None:
        waiting = any(len(merge) for merge in self._merges.values())
        impatient = waiting and time.monotonic() - self._progress_seconds > PATIENCE_SECONDS
        for partition in list(self._merges):
            self._drain(partition, impatient=impatient)

    def _drain(self, partition: int, *, impatient: bool = False) -> None:
        now_ns = time.monotonic_ns()
        merge = self._merge(partition)
        for place, event in merge.release(lambda topic: self._lags(topic, partition), impatient=impatient):
            handle = (TP(place.topic, place.partition), place.offset)
            out, done = self.holdings.push(place, event, handle, now_ns)
            self._send_all(out)
            self._finish(done)
            self._progress_seconds = time.monotonic()

    def _send_all(self, events: list[Event]) -> None:
        for event in events:
            self.n_frames += isinstance(event, FrameEvent)
            self.n_alerts += isinstance(event, AlertEvent)
            self._sent.append((self._send(event), None))

    def _send(self, event: Event) -> Any:
        headers = dict(self._wire.headers(event)) if isinstance(event, AlertEvent) else {}
        return self._outputs[event.topic].send_soon(
            key=event.job.encode(), value=self._wire.encode(event), headers=headers, force=True
        )

    async def _checkpoint_for_ever(self) -> None:
        while not self.app.should_stop:
            began = time.monotonic()
            ill = self.ailment()
            if ill is not None:
                raise EacgmError(f"{ill}; start this worker anew")
            if self._ready:
                await self._seek_what_is_missed()
                self._note_quiet()
                self._send_all(self.holdings.tick(time.monotonic_ns(), self._quiet_ns.get))
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

    async def checkpoint(self) -> None:
        """Write the snapshot of every job that has changed, once all that it led to is delivered; then acknowledge."""
        epoch = self._epoch
        await self._delivered()
        for job in self.holdings.due():
            if epoch != self._epoch:
                return
            point = self.holdings.checkpoint(job)
            await self._delivered()
            if epoch != self._epoch:
                return  # somebody else may have gone on already: an older snapshot must not follow a newer one
            await self._write(point)
            if epoch == self._epoch:
                self.holdings.written(point)
                self._finish(point.handles)
                self.n_checkpoints += 1

    async def _delivered(self) -> None:
        """Wait until all that was sent so far is on its topic."""
        sent, self._sent = self._sent, []
        for future, handle in sent:
            try:
                await asyncio.wait_for(future, DELIVERY_SECONDS)
            except Exception as error:
                raise EacgmError(f"a frame, alert or dead letter could not be delivered ({error!r})") from error
            if handle is not None:
                self._finish([handle])

    def _finish(self, handles: list[Handle]) -> None:
        for event in self._acknowledgements.finish(handles):
            event.ack()

    async def _write(self, point: Checkpoint[Handle]) -> None:
        key = point.job.encode()
        future = self._table.send_changelog(None, key, point.payload, value_serializer="raw")
        if point.payload is None:
            self._table.data.pop(key, None)
        else:
            self._table.data[key] = point.payload
        try:
            await asyncio.wait_for(future, DELIVERY_SECONDS)
        except Exception as error:
            raise EacgmError(f"snapshot of job {point.job!r} could not be written ({error!r})") from error


def partition_of(key: bytes, n_partitions: int) -> int:
    """Return the partition that Java's default partitioner, aiokafka and librdkafka's murmur2_random choose."""
    return int(murmur2(key) & 0x7FFFFFFF) % n_partitions


def _application(wire: Wire, group: str) -> faust.App:
    return faust.App(
        group,
        broker=wire.broker,
        broker_credentials=wire.credentials,
        store="memory://",
        web_enabled=False,
        topic_partitions=wire.n_partitions,
        topic_allow_declare=True,
        topic_disable_leader=True,
        table_standby_replicas=0,
        # unacknowledged messages are the rule here: they must not hold up the end
        stream_wait_empty=False,
        stream_buffer_maxsize=16_384,
        broker_session_timeout=6.0,
        broker_heartbeat_interval=1.0,
        broker_commit_interval=1.0,
        broker_max_poll_interval=120.0,
        consumer_auto_offset_reset="earliest",
        producer_compression_type="lz4",
        producer_max_request_size=16 * 1024 * 1024,
        producer_linger=0.02,
    )
