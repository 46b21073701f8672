"""``eacgm worker``: the pipeline on Kafka, one of a group."""

from __future__ import annotations

import logging
import os
from copy import copy
from typing import TYPE_CHECKING

import click

from eacgm.cli.kafka_options import kafka_options
from eacgm.cli.options import config_options
from eacgm.cli.output import note
from eacgm.config import Config
from eacgm.errors import BrokerError, EacgmError

if TYPE_CHECKING:
    from eacgm.kafka.connection import Connection
    from eacgm.streams.wire import Wire


@click.command()
@click.option("--group", default=None, metavar="NAME", help="Workers of a group share the jobs; default eacgm-worker.")
@click.option("--alerts-topic", metavar="TOPIC", help="Write alerts to another topic than eacgm.alerts.v1.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics for Prometheus and /healthz there.")
@click.option("--verbose", is_flag=True, help="Also tell of partitions that come and go.")
@kafka_options
@config_options
def command(
    connection: Connection,
    group: str | None,
    alerts_topic: str | None,
    metrics: str | None,
    verbose: bool,
    config: Config,
) -> int:
    """Read all topics, join and judge, and write frames and alerts, until Ctrl-C or SIGTERM.

    Workers of one group share the jobs. When one dies, the others go on from its last snapshot: no window is lost or
    counted twice, and an alert that was under way when it died may be written twice, with the same id.

    \b
    Example:
      eacgm topics create --bootstrap kafka:9092
      eacgm worker --bootstrap kafka:9092 --metrics 127.0.0.1:9464
    """  # noqa: D301 - click reads the backspace as: keep these lines
    from contextlib import ExitStack
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from eacgm.events import AlertEvent
    from eacgm.kafka.topics import WORKER
    from eacgm.metrics import MetricsServer
    from eacgm.streams.app import FleetShell
    from eacgm.streams.worker_readings import worker_readings

    name = group or WORKER
    wire = open_wire(connection, name, alerts_topic or AlertEvent.topic)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="eacgm-worker-")))
        shell = FleetShell(wire, group=name, config=config, folder=folder)
        if metrics is not None:
            server = stack.enter_context(MetricsServer(metrics, lambda: worker_readings(shell), shell.ailment))
            note(f"metrics at http://{server.address}/metrics")
        note(f"worker of group {name} on {wire.n_partitions} partitions of {connection.bootstrap}; Ctrl-C ends it")
        serve(shell.app, verbose=verbose)
    note(
        f"{shell.n_messages:,} messages, {shell.outputs.n_frames:,} frames, {shell.outputs.n_alerts:,} alerts, "
        f"{shell.intake.n_dead:,} dead letters"
    )
    return 0


def open_wire(connection: Connection, group: str, alerts_topic: str) -> Wire:
    """Return how messages travel; raises ``BrokerError`` where Kafka or a topic is not to be had."""
    from eacgm.events import AlertEvent
    from eacgm.kafka.clients import open_admin, reach
    from eacgm.kafka.complaints import Complaints
    from eacgm.kafka.positions import GroupPositions
    from eacgm.kafka.topics import changelog
    from eacgm.schemas.cloudevents import alert_headers
    from eacgm.schemas.framing import Framing
    from eacgm.schemas.registry import Registry
    from eacgm.streams.intake import INPUT_TOPICS
    from eacgm.streams.wire import OUTPUT_TOPICS, Wire

    complaints = Complaints(connection)
    present = reach(open_admin(connection, complaints), complaints).topics
    needed = (*INPUT_TOPICS, *OUTPUT_TOPICS, alerts_topic, changelog(group))
    counts = {topic: len(present[topic].partitions) for topic in needed if topic in present}
    missing = [topic for topic in needed if topic not in counts]
    if missing == [alerts_topic] and alerts_topic != AlertEvent.topic:
        raise BrokerError(
            f"no topic {alerts_topic} at {connection.bootstrap}; make it with Kafka's tools, like the usual"
        )
    if missing:
        hint = f"eacgm topics create --bootstrap {connection.bootstrap} --worker {group}"
        raise BrokerError(f"no topic {', '.join(missing)} at {connection.bootstrap}; run: {hint}")
    n_partitions = counts[INPUT_TOPICS[0]]
    uneven = [topic for topic in (*INPUT_TOPICS, changelog(group)) if counts[topic] != n_partitions]
    if uneven:
        raise BrokerError(
            f"{uneven[0]} has {counts[uneven[0]]} partitions and {INPUT_TOPICS[0]} {n_partitions}; expected as many "
            "everywhere, run: eacgm topics check"
        )
    framing = Framing(Registry(connection.registry) if connection.registry is not None else None)
    return Wire(
        broker=connection.faust_broker(),
        credentials=connection.faust_credentials(),
        n_partitions=n_partitions,
        decode=framing.decode_all,
        encode=framing.encode,
        starts=GroupPositions(connection, group).starts,
        headers=lambda alert: dict(alert_headers(alert)),
        alerts_topic=alerts_topic,
    )


class OneLine(logging.Formatter):
    """What the libraries log, each in one line; the traceback of an error only with ``EACGM_DEBUG=1``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        if os.environ.get("EACGM_DEBUG"):
            return super().format(record)
        plain = copy(record)
        plain.exc_info = plain.exc_text = plain.stack_info = None
        return " ".join(super().format(plain).split())


def serve(app: object, *, verbose: bool) -> None:
    """Run a Faust application until it is told to stop; raises ``EacgmError`` with what ended it early."""
    import io
    from typing import Any, cast

    import faust

    handler = logging.StreamHandler()
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    application: Any = app
    worker = faust.Worker(
        application,
        loglevel="INFO" if verbose else "WARNING",
        override_logging=False,
        redirect_stdouts=False,
        quiet=True,
        stdout=io.StringIO(),  # its spinner's; our own lines go elsewhere
    )
    try:
        worker.execute_from_commandline()
    except SystemExit as ending:
        reason = cast(BaseException | None, getattr(application, "crash_reason", None))
        if reason is not None:
            raise EacgmError(" ".join(str(reason).split()) or type(reason).__name__) from None
        if ending.code:
            raise EacgmError(f"the worker ended with status {ending.code}") from None
