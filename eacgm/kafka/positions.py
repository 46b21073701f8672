"""Where a consumer group goes on in each topic-partition, asked of the brokers themselves."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaException, TopicPartition

from eacgm.kafka.clients import open_consumer, refusal
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection

REQUEST_SECONDS = 10.0

#: a topic and a partition's number
Source = tuple[str, int]


class GroupPositions:
    """Asks for the positions of one consumer group without joining it."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._complaints = Complaints(connection)
        self._consumer = open_consumer(connection, self._complaints, {"group.id": group})

    def starts(self, sources: Iterable[Source]) -> dict[Source, int]:
        """Return the offset at which the group goes on: the committed one, or the oldest that is still there.

        Raises ``BrokerError`` where the brokers do not answer.
        """
        asked = [TopicPartition(topic, partition) for topic, partition in sources]
        if not asked:
            return {}
        try:
            found = {}
            for known in self._consumer.committed(asked, timeout=REQUEST_SECONDS):
                low, _ = self._consumer.get_watermark_offsets(known, timeout=REQUEST_SECONDS)
                # what retention has deleted cannot be asked for any more
                found[known.topic, known.partition] = max(known.offset, low)
        except KafkaException as error:
            raise refusal(error) from None
        return found

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()
