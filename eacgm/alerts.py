"""Alerts for programs of your own: what the workers write to Kafka, one object each.

::

    from eacgm.alerts import alerts

    for alert in alerts(bootstrap="kafka:9092"):
        if alert.state == "open" and alert.severity == "critical":
            page(alert.summary, ranks=alert.ranks.tolist())
"""

from __future__ import annotations

from collections.abc import Iterator

from eacgm.events import AlertEvent, Evidence
from eacgm.kafka.alert_reader import AlertReader
from eacgm.kafka.connection import Connection

__all__ = ["AlertEvent", "Evidence", "alerts"]

_POLL_SECONDS = 0.5


def alerts(
    bootstrap: str | None = None,
    *,
    topic: str = AlertEvent.topic,
    since_ns: int | None = None,
    follow: bool = True,
    connection: Connection | None = None,
) -> Iterator[AlertEvent]:
    """Yield the alerts of a topic, each once (by ``id``), those that are there already first.

    ``bootstrap`` are Kafka's brokers (``HOST:PORT,...``, default EACGM_KAFKA_BOOTSTRAP); TLS, SASL and the schema
    registry come from EACGM_KAFKA_*, or from a ``connection``. ``since_ns`` (UTC ns) leaves out what was published
    before; with ``follow`` False the iteration ends with what was there when it began. Brokers that go away later are
    waited for.
    Raises ``ConfigError`` where no broker is named, and ``BrokerError`` where none answers or the topic is missing.
    """
    where = connection or Connection.from_environment(bootstrap=bootstrap)
    with AlertReader(where, topic=topic, since_ns=since_ns) as reader:
        for batch in reader.to_the_end():
            yield from batch
        while follow:
            yield from reader.poll(_POLL_SECONDS)
