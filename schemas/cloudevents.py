"""CloudEvents attributes of alerts as headers of Kafka messages (binary content mode)."""

from __future__ import annotations

from urllib.parse import quote

from eacgm.events import AlertEvent
from eacgm.instants import rfc3339

Headers = list[tuple[str, bytes]]


def alert_headers(alert: AlertEvent) -> Headers:
    """Return the headers of an alert's message: who reads only these can already route it.

    ``ce_time`` is when this state was reached: the resolution's time for a resolved incident, else the detection's.

    >>> dict(alert_headers(AlertEvent(job="a b", start_ns=0, end_ns=1, id="x")))["ce_source"]
    b'/eacgm/jobs/a%20b'
    """
    reached_ns = alert.detected_at_ns if alert.resolved_at_ns is None else alert.resolved_at_ns
    attributes = {
        "ce_specversion": "1.0",
        "ce_id": alert.id,
        "ce_source": f"/eacgm/jobs/{quote(alert.job, safe='')}",
        "ce_type": f"io.eacgm.alert.{alert.state}",
        "ce_subject": alert.incident,
        "ce_time": rfc3339(reached_ns),
        "content-type": "application/avro",
    }
    return [(name, value.encode()) for name, value in attributes.items()]
