"""``eacgm publish``: a recording to Kafka, as fast as it was or faster."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eacgm.cli.kafka_options import kafka_options
from eacgm.cli.options import job_name
from eacgm.cli.output import Progress, note
from eacgm.cli.replay import told_warnings
from eacgm.cli.stopping import StopOrder, stopped_by_signals
from eacgm.errors import BrokerError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from eacgm.kafka.connection import Connection

FLUSH_SECONDS = 60.0
#: messages that may be under way before more are read
MOST_WAITING = 20_000
#: messages that Kafka would delete sooner after they came than this are given the present time
SHORTEST_STAY_MS = 3_600_000


def speed(context: click.Context, parameter: click.Parameter, text: str) -> float | None:
    """Convert ``1x``, ``2.5x`` or ``max`` to a factor, None for max (a click callback)."""
    if text == "max":
        return None
    try:
        factor = float(text.removesuffix("x"))
    except ValueError:
        factor = 0.0
    if not 0.0 < factor < 1e6:
        raise click.BadParameter(f"{text!r} is no speed; expected 1x, 10x or max", context, parameter)
    return factor


@click.command()
@click.argument("recording", type=click.Path(path_type=Path))
@click.option("--speed", "factor", callback=speed, default="max", show_default=True, help="1x, 10x, ... or max.")
@click.option("--job", callback=job_name, metavar="NAME", help="Call all its jobs by this name.")
@click.option(
    "--timestamps",
    type=click.Choice(["auto", "events", "now"]),
    default="auto",
    show_default=True,
    help="Kafka's own times, by which it deletes: the events', now, or (auto) the events' unless they are too old.",
)
@kafka_options
def command(connection: Connection, recording: Path, factor: float | None, job: str | None, timestamps: str) -> None:
    """Send a recording's events to their topics, in their order; event times are kept.

    Two recordings of one job in the same topics mix: give each a name of its own with --job.

    \b
    Example:
      eacgm publish recording --bootstrap kafka:9092 --speed 10x --job again
    """  # noqa: D301 - click reads the backspace as: keep these lines
    from eacgm.kafka.clients import open_admin, reach
    from eacgm.kafka.complaints import Complaints
    from eacgm.kafka.publisher import Publisher
    from eacgm.schemas.framing import Framing
    from eacgm.schemas.recording import RecordingReader
    from eacgm.schemas.registry import Registry

    events = RecordingReader(recording)
    complaints = Complaints(connection)
    admin = open_admin(connection, complaints)
    needed = {path.parts[-3] for path in events.files}
    missing = sorted(needed - reach(admin, complaints).topics.keys())
    if missing:
        hint = f"eacgm topics create --bootstrap {connection.bootstrap}"
        raise BrokerError(f"no topic {', '.join(missing)} at {connection.bootstrap}; run: {hint}")
    framing = Framing(Registry(connection.registry) if connection.registry is not None else None)
    publisher = Publisher(connection, framing, complaints)
    began, first_ns, sent, original = time.monotonic(), None, 0, True
    with told_warnings(), stopped_by_signals() as stop, Progress("publishing") as progress:
        for event in events:
            published_ns = event.published_ns or event.end_ns
            if first_ns is None:
                first_ns = published_ns
                original = timestamps == "events" or (timestamps == "auto" and _stays(admin, needed, published_ns))
            if factor is not None and _wait(stop, began + (published_ns - first_ns) / 1e9 / factor):
                break
            while publisher.waiting > MOST_WAITING and not stop.is_set():
                publisher.flush(0.1)
            if stop.is_set():
                break
            if job is not None:
                event.job = job
            publisher.publish(event, time_ms=published_ns // 1_000_000 if original else None)
            sent += 1
            progress.update(read=f"{events.share or 0:.0%}", events=sent, waiting=publisher.waiting)
        left = publisher.flush(FLUSH_SECONDS)
    note(f"{publisher.delivered:,} of {sent:,} events delivered" + (", stopped early" if stop.is_set() else ""))
    if left or publisher.failed or publisher.dropped:
        raise BrokerError(f"{left + publisher.failed + publisher.dropped:,} events were not delivered")


def _stays(admin: AdminClient, names: set[str], published_ns: int) -> bool:
    """Tell whether Kafka would keep messages of that time for a while; say so if not."""
    from eacgm.kafka.topics import kept_ms

    kept = kept_ms(admin, names)
    if kept is None or published_ns // 1_000_000 + kept > time.time_ns() // 1_000_000 + SHORTEST_STAY_MS:
        return True
    note("older than Kafka keeps messages: it gets the present time for theirs (--timestamps events keeps their own)")
    return False


def _wait(stop: StopOrder, until: float) -> bool:
    """Wait until a monotonic time; return whether told to stop."""
    seconds = until - time.monotonic()
    return stop.wait(seconds) if seconds > 0 else stop.is_set()
