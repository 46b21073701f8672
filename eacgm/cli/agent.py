"""``eacgm agent``: this machine's readings to Kafka, until it is told to stop."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import click

from eacgm.cli.kafka_options import kafka_options
from eacgm.cli.live import LiveView, Numbers
from eacgm.cli.run import TICK_SECONDS, stopped_by_signals
from eacgm.events import Event

if TYPE_CHECKING:
    from eacgm.kafka.connection import Connection
    from eacgm.kafka.publisher import Publisher

#: SIGTERM waits this long for what is under way
FLUSH_SECONDS = 10.0


@click.command()
@click.option("--job", metavar="NAME", help="The name of jobs that tell none.")
@click.option(
    "--interval-ms", type=click.IntRange(100, 60_000), default=1000, show_default=True, help="Of one reading."
)
@kafka_options
def command(connection: Connection, job: str | None, interval_ms: int) -> int:
    """Watch all jobs of this machine and send what is seen to Kafka, until Ctrl-C or SIGTERM.

    Nothing is judged here: workers do that, for all machines together. While Kafka is away readings wait in memory, up
    to 64 MiB; what does not fit, or waits longer than five minutes, is dropped and counted.

    \b
    Example:
      eacgm topics create --bootstrap kafka:9092
      eacgm agent --bootstrap kafka:9092
    """  # noqa: D301 - click reads the backspace as: keep these lines
    from eacgm.kafka.clients import open_admin, reach
    from eacgm.kafka.complaints import Complaints
    from eacgm.kafka.publisher import Publisher
    from eacgm.producers.agent import Agent
    from eacgm.producers.agent_thread import AgentThread
    from eacgm.schemas.framing import Framing
    from eacgm.schemas.registry import Registry

    stop = threading.Event()
    with stopped_by_signals(stop), LiveView(sys.stderr) as view:
        complaints = Complaints(connection, say=view.say)
        reach(open_admin(connection, complaints), complaints)
        framing = Framing(Registry(connection.registry) if connection.registry is not None else None)
        publisher = Publisher(connection, framing, complaints)
        numbers = Numbers()

        def publish(event: Event) -> None:
            numbers.see_input(event)
            publisher.publish(event)

        agent = Agent(publish, interval_ms=interval_ms, job=job)
        if agent.failure is not None:
            view.say(f"without probes: {agent.failure}; only what /proc tells is watched", "yellow")
        with AgentThread(agent) as thread:
            view.say(f"watching, and sending to {connection.bootstrap}; Ctrl-C ends it")
            while not stop.wait(TICK_SECONDS) and not thread.failed.is_set():
                view.show(numbers, f"watching {len(agent.processes)} processes, {_counts(publisher)}")
        left = publisher.flush(FLUSH_SECONDS)
        view.say(f"{numbers.n_events:,} events: {_counts(publisher)}" + (f"; {left:,} not sent" if left else ""))
    return 1 if left else 0


def _counts(publisher: Publisher) -> str:
    return (
        f"{publisher.delivered:,} delivered, {publisher.waiting:,} waiting, "
        f"{publisher.failed:,} failed, {publisher.dropped:,} dropped"
    )
