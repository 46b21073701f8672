"""``eacgm record``: a stretch of Kafka's topics to a recording."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from eacgm.cli.kafka_options import kafka_options
from eacgm.cli.options import instant, job_name
from eacgm.cli.output import Progress, note
from eacgm.cli.sources import check_order
from eacgm.errors import InputError

if TYPE_CHECKING:
    from eacgm.kafka.connection import Connection


@click.command()
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", required=True, help="A new folder.")
@click.option("--since", callback=instant, metavar="TIME", help="Leave out what began before (RFC 3339 or seconds).")
@click.option("--until", callback=instant, metavar="TIME", help="Leave out what ended later (RFC 3339 or seconds).")
@click.option("--job", callback=job_name, metavar="NAME", help="Only this job.")
@kafka_options
def command(connection: Connection, out: Path, since: int | None, until: int | None, job: str | None) -> None:
    """Keep what the topics hold, up to now, as a recording that `eacgm replay` reads.

    With --since, who the processes are is also taken from the minute before.

    \b
    Example:
      eacgm record --bootstrap kafka:9092 --since 2026-01-01T00:00:00Z --until 2026-01-01T01:00:00Z --out night
    """  # noqa: D301 - click reads the backspace as: keep these lines
    from eacgm.events import ProcessEvent
    from eacgm.schemas.recording import RecordingWriter
    from eacgm.streams.replay import IDENTITY_NS
    from eacgm.streams.stretch import Stretch

    check_order(since, until)
    new = not out.exists()
    begin = None if since is None else max(since - IDENTITY_NS, 0)
    stretch = Stretch(connection, since_ns=begin, until_ns=until, job=job)
    with RecordingWriter(out) as recording, Progress("recording") as progress:
        for event in stretch:
            early = since is not None and event.start_ns < since
            known = isinstance(event, ProcessEvent) and event.start_ns >= (begin or 0)
            if (early and not known) or (until is not None and event.end_ns > until):
                continue
            recording.write(event)
            progress.update(read=f"{stretch.share or 0:.0%}", events=recording.count)
    if stretch.dead:
        note(f"{stretch.dead:,} messages could not be read and were left out")
    if not recording.count:
        if new:
            out.rmdir()
        raise InputError("no event lies there; widen --since and --until, or look for the job's name", path=str(out))
    note(f"{recording.count:,} events in {out}")
