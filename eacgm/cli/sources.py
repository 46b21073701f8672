"""Where a command reads events from: a recording's folder, or a stretch of Kafka's topics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eacgm.cli.output import note
from eacgm.errors import ConfigError

if TYPE_CHECKING:
    from eacgm.kafka.connection import Connection
    from eacgm.schemas.recording import RecordingReader
    from eacgm.streams.stretch import Stretch


def connection_of(source: str) -> Connection:
    """Return the connection that ``kafka://HOST:PORT,...`` and EACGM_KAFKA_* describe; a usage error if they do not."""
    from eacgm.kafka.connection import Connection
    from eacgm.streams.stretch import SCHEME

    try:
        return Connection.from_environment(bootstrap=source.removeprefix(SCHEME).strip("/") or None)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


@contextmanager
def opened(
    source: str, since_ns: int | None, until_ns: int | None, job: str | None
) -> Iterator[RecordingReader | Stretch]:
    """Give the events of a source, those shortly before ``since_ns`` included; tell what could not be read."""
    from eacgm.schemas.recording import RecordingReader
    from eacgm.streams.replay import IDENTITY_NS
    from eacgm.streams.stretch import Stretch, is_stretch

    if not is_stretch(source):
        yield RecordingReader(Path(source))
        return
    begin_ns = None if since_ns is None else max(since_ns - IDENTITY_NS, 0)
    stretch = Stretch(connection_of(source), since_ns=begin_ns, until_ns=until_ns, job=job)
    try:
        yield stretch
    finally:
        stretch.close()
    if stretch.dead:
        note(f"{stretch.dead:,} messages could not be read and were left out")
    if stretch.disordered:
        note(f"{stretch.disordered:,} events are older than others before them: look at each job alone, with --job")


def check_order(since_ns: int | None, until_ns: int | None) -> None:
    """Refuse a stretch that ends before it begins."""
    if since_ns is not None and until_ns is not None and since_ns >= until_ns:
        raise click.BadParameter("is not before --until", param_hint="--since")
