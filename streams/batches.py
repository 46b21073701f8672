"""Messages from Faust by the batch: per message it costs more than our whole pipeline does.

Faust hands every record of a fetch through three tasks and two queues. Its scheduler, which decides in what order a
fetch's records are handed out, may hand out what it likes: ours hands out whole runs of a topic-partition's records as
one message. Faust then knows nothing of single offsets, so acknowledging is ours too (``acknowledgements``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from faust.transport.utils import DefaultSchedulingStrategy
from faust.types import TP

from eacgm.streams.intake import INPUT_TOPICS

#: records handed out as one
MOST_RECORDS = 512


class Batch(NamedTuple):
    """Consecutive records of one topic-partition, in the shape of a record; ``value`` holds them."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    value: list[Any]
    timestamp_type: int = 0
    headers: tuple[()] = ()
    key: None = None
    checksum: None = None
    serialized_key_size: int = -1
    serialized_value_size: int = -1


class BatchScheduler(DefaultSchedulingStrategy):
    """Hands out the records of input topics by the batch, those of all other topics one by one."""

    def iterate(self, records: Mapping[TP, list[Any]]) -> Iterator[tuple[TP, Any]]:
        """Yield each topic-partition in turn and its next record or batch."""
        return super().iterate({tp: _batches(tp, found) for tp, found in records.items()})


def _batches(tp: TP, records: list[Any]) -> list[Any]:
    if tp.topic not in INPUT_TOPICS:
        return records
    runs = (records[begin : begin + MOST_RECORDS] for begin in range(0, len(records), MOST_RECORDS))
    return [Batch(tp.topic, tp.partition, run[0].offset, run[0].timestamp, run) for run in runs]
