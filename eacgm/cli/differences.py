"""What a second look found other than the first: alerts to a topic of their own, and the differences told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eacgm.cli.output import note, print_json, print_table
from eacgm.cli.sources import connection_of
from eacgm.errors import BrokerError, UsageError
from eacgm.instants import rfc3339

if TYPE_CHECKING:
    from eacgm.events import AlertEvent
    from eacgm.streams.comparison import Difference

FLUSH_SECONDS = 30.0


@contextmanager
def second_topic(source: str, topic: str) -> Iterator[Callable[[AlertEvent], None]]:
    """Give what writes alerts to a topic of their own, which is made if it is not there.

    Raises ``UsageError`` for the topic that workers write to, ``BrokerError`` where not all could be delivered.
    """
    from eacgm.events import AlertEvent
    from eacgm.kafka import topics
    from eacgm.kafka.clients import open_admin, reach
    from eacgm.kafka.complaints import Complaints
    from eacgm.kafka.publisher import Publisher
    from eacgm.schemas.framing import Framing
    from eacgm.schemas.registry import Registry
    from eacgm.streams.stretch import is_stretch

    if topic == AlertEvent.topic:
        raise UsageError(f"{topic} is what workers write to; give a second topic, such as {topic}.replayed")
    connection = connection_of(source if is_stretch(source) else "")
    complaints = Complaints(connection)
    admin = open_admin(connection, complaints)
    metadata = reach(admin, complaints)
    if topic not in metadata.topics:
        topics.create(admin, [topics.like_alerts(topic, topics.usual_replicas(len(metadata.brokers)))])
    registry = Registry(connection.registry) if connection.registry is not None else None
    publisher = Publisher(connection, Framing(registry), complaints)
    yield lambda alert: publisher.publish(alert, topic=topic)
    left = publisher.flush(FLUSH_SECONDS)
    if left or publisher.failed or publisher.dropped:
        raise BrokerError(f"{left + publisher.failed + publisher.dropped:,} alerts did not reach {topic}")


def earlier_alerts(source: str, old: str) -> list[AlertEvent]:
    """Return the alerts of ``old``, a file (or pipe) of JSON lines or a topic of the ``source``.

    Raises ``UsageError`` for what is neither, ``InputError`` for a file of something else, ``BrokerError``.
    """
    from eacgm.streams.alert_lines import read_alerts
    from eacgm.streams.stretch import is_stretch

    path = Path(old)
    if path.exists() and not path.is_dir():
        return list(read_alerts(path))
    if not is_stretch(source):
        raise UsageError(f"--compare: no file {old!r}; expected JSON lines of alerts, or a topic of kafka://...")
    from eacgm.kafka.alert_reader import AlertReader

    with AlertReader(connection_of(source), topic=old) as reader:
        return [alert for batch in reader.to_the_end() for alert in batch]


def print_differences(
    old: str,
    before: Iterable[AlertEvent],
    alerts: Iterable[AlertEvent],
    stretch: tuple[int | None, int],
    *,
    as_json: bool,
) -> None:
    """Print how the incidents of ``alerts`` differ from those ``before``, which are called ``old``.

    Old incidents are looked at that began in the stretch (UTC ns), in jobs of which there is anything in it or not.
    """
    from eacgm.streams.comparison import compare, incidents

    since, until = stretch
    known = [one for one in incidents(before) if (since or 0) <= one.started_ns <= until]
    found = compare(known, incidents(alerts))
    for difference in found if as_json else ():
        print_json(_record(difference))
    if found and not as_json:
        print_table([_row(difference) for difference in found])
    if not as_json:
        counts = {kind: sum(one.kind == kind for one in found) for kind in ("new", "gone", "changed")}
        told = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        note(f"compared with {len(known)} incidents of {old}: {told}")


def _record(difference: Difference) -> dict[str, Any]:
    one = difference.incident
    return {
        "difference": difference.kind,
        "incident": one.incident,
        "job": one.job,
        "cause": one.cause,
        "severity": one.severity,
        "ranks": list(one.ranks),
        "started_at": rfc3339(one.started_ns),
        "changes": {name: [_plain(name, value) for value in values] for name, values in difference.changes.items()},
    }


def _row(difference: Difference) -> dict[str, Any]:
    one = difference.incident
    changes = "; ".join(
        f"{name.removesuffix('_ns')} {_plain(name, before)} -> {_plain(name, after)}"
        for name, (before, after) in difference.changes.items()
    )
    return {
        "": difference.kind,
        "started": rfc3339(one.started_ns),
        "job": one.job,
        "cause": one.cause,
        "ranks": list(one.ranks),
        "changes": changes,
    }


def _plain(name: str, value: Any) -> Any:
    if name.endswith("_ns"):
        return None if value is None else rfc3339(value)
    return list(value) if isinstance(value, tuple) else value
