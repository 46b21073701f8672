"""The Faust application a worker runs in, with the settings that what we rely on was tested with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import faust
from aiokafka.partitioner import murmur2

from eacgm.streams.batches import BatchScheduler
from eacgm.streams.wire import Wire

#: batches that may wait for the intake
MOST_BATCHES = 64


def partition_of(key: bytes, n_partitions: int) -> int:
    """Return the partition that Java's default partitioner, aiokafka and librdkafka's murmur2_random choose."""
    return int(murmur2(key) & 0x7FFFFFFF) % n_partitions


class Application(faust.App):
    """A Faust application that does a last thing while it still has its topics."""

    #: what is done before the topics are let go
    parting: Callable[[], Awaitable[None]] | None = None

    async def on_stop(self) -> None:
        """Do the last thing, then what Faust does."""
        if self.parting is not None:
            await self.parting()
        await super().on_stop()


def application(wire: Wire, group: str, folder: Path) -> Application:
    """Return the application of one worker of a group; nothing is connected yet.

    ``folder`` is where Faust makes folders for stores on disk, which we have none of: not where the worker was started.
    """
    return Application(
        group,
        datadir=folder,
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
        stream_buffer_maxsize=MOST_BATCHES,
        broker_session_timeout=6.0,
        broker_heartbeat_interval=1.0,
        broker_max_poll_interval=120.0,
        ConsumerScheduler=BatchScheduler,
        consumer_auto_offset_reset="earliest",
        producer_compression_type="lz4",
        producer_max_request_size=16 * 1024 * 1024,
        producer_linger=0.02,
    )


def raw_topic(app: faust.App, *names: str, acks: bool = True) -> Any:
    """Return topics of whose keys and values Faust sees the bytes only; ``acks`` whether it acknowledges messages."""
    raw: dict[str, Any] = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
    return app.topic(*names, acks=acks, partitions=app.conf.topic_partitions, **raw)
