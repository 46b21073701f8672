"""``eacgm agent``: this machine's readings to Kafka, until it is told to stop."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eacgm.cli.kafka_options import kafka_options
from eacgm.cli.live import LiveView, Numbers
from eacgm.cli.options import job_name, probes, watching_options
from eacgm.cli.run import TICK_SECONDS
from eacgm.cli.stopping import stopped_by_signals
from eacgm.errors import BrokerError
from eacgm.events import Event

if TYPE_CHECKING:
    from eacgm.kafka.backlog import Backlog
    from eacgm.kafka.complaints import Complaints
    from eacgm.kafka.connection import Connection
    from eacgm.kafka.outbox import Outbox

#: SIGTERM waits this long for what is under way
FLUSH_SECONDS = 10.0
#: the first answer of the brokers is waited for this long; without one the agent begins all the same
REACH_SECONDS = 5.0
MEMORY_MB = 64
_MEGABYTE = 1_000_000


@click.command()
@click.option("--job", callback=job_name, metavar="NAME", help="The name of jobs that tell none.")
@click.option(
    "--interval-ms", type=click.IntRange(100, 60_000), default=1000, show_default=True, help="Of one reading."
)
@click.option(
    "--spool",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep what waits for Kafka in this folder, also for the next agent.",
)
@click.option(
    "--spool-mb",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    help=f"Keep at most so much, then drop the oldest; default 512 in a folder, {MEMORY_MB} without.",
)
@click.option(
    "--compression",
    type=click.Choice(["lz4", "zstd", "gzip", "none"]),
    default="lz4",
    show_default=True,
    help="Of batches.",
)
@click.option("--metrics", metavar="HOST:PORT", help="Serve /metrics for Prometheus and /healthz there.")
@watching_options
@kafka_options
def command(
    connection: Connection,
    job: str | None,
    interval_ms: int,
    spool: Path | None,
    spool_mb: int | None,
    compression: str,
    metrics: str | None,
    cpu_budget: float,
    torch_ops: str,
) -> int:
    """Watch all jobs of this machine and send what is seen to Kafka, until Ctrl-C or SIGTERM.

    Nothing is judged here: workers do that, for all machines together. While Kafka is away readings wait, in memory or
    in --spool's folder, and are sent later in their order; where there is no room the oldest are dropped and counted.

    \b
    Example:
      eacgm topics create --bootstrap kafka:9092
      eacgm agent --bootstrap kafka:9092 --spool /var/lib/eacgm
    """  # noqa: D301 - click reads the backspace as: keep these lines
    from eacgm.kafka.agent_readings import agent_readings
    from eacgm.kafka.clients import open_producer
    from eacgm.kafka.complaints import Complaints
    from eacgm.kafka.outbox import ARRIVAL_MS, Outbox
    from eacgm.metrics import MetricsServer
    from eacgm.producers.agent import Agent
    from eacgm.producers.agent_thread import AgentThread
    from eacgm.producers.privileges import confine_process
    from eacgm.schemas.framing import Framing
    from eacgm.schemas.registry import Registry

    confine_process(_exceptions(spool, metrics))
    settings = {"compression.type": compression, "linger.ms": 50, "message.timeout.ms": ARRIVAL_MS}
    with stopped_by_signals() as stop, LiveView(sys.stderr) as view, ExitStack() as stack:
        complaints = Complaints(connection, say=view.say)
        _find_topics(connection, complaints, view)
        framing = Framing(Registry(connection.registry) if connection.registry is not None else None)
        backlog = _backlog(spool, spool_mb)
        outbox = stack.enter_context(Outbox(lambda: open_producer(connection, complaints, settings), framing, backlog))
        numbers = Numbers()

        def publish(event: Event) -> None:
            numbers.see_input(event)
            outbox.publish(event)

        agent = Agent(
            publish,
            interval_ms=interval_ms,
            job=job,
            unsent=outbox.take_losses,
            probes=probes(torch_ops),
            cpu_percent=cpu_budget,
        )
        if agent.failure is not None:
            view.say(f"without probes: {agent.failure}; only what /proc tells is watched", "yellow")
        if metrics is not None:
            server = MetricsServer(metrics, lambda: agent_readings(outbox, len(agent.processes), numbers.n_events))
            view.say(f"metrics at http://{stack.enter_context(server).address}/metrics")
        with AgentThread(agent) as thread:
            view.say(f"watching, and sending to {connection.bootstrap}; Ctrl-C ends it")
            arrived = 0
            while not stop.wait(TICK_SECONDS) and not thread.failed.is_set():
                if outbox.delivered > arrived:
                    arrived = outbox.delivered
                    complaints.reached()
                view.show(numbers, f"watching {len(agent.processes)} processes, {_counts(outbox)}")
        left = outbox.close(FLUSH_SECONDS)
        where = f"; {left:,} wait in {spool} for the next agent" if spool else f"; {left:,} not sent"
        view.say(f"{numbers.n_events:,} events: {_counts(outbox)}" + (where if left else ""))
    return 1 if outbox.dropped or outbox.failed or (left and spool is None) else 0


def _exceptions(spool: Path | None, metrics: str | None) -> list[str]:
    """Return the capabilities that these options need beyond the agent's own."""
    from eacgm.producers.privileges import foreign

    port = (metrics or "").rpartition(":")[2]
    low = port.isdigit() and 0 < int(port) < 1024
    return ["CAP_DAC_OVERRIDE"] * foreign(spool) + ["CAP_NET_BIND_SERVICE"] * low


def _find_topics(connection: Connection, complaints: Complaints, view: LiveView) -> None:
    """Look whether the topics are there; a broker that is away is told, and waited for while the agent works.

    Raises ``BrokerError`` where waiting would not help: refused credentials, no topics.
    """
    from eacgm.events import CallsEvent, CollectivesEvent, GpuEvent, HostEvent, ProcessEvent
    from eacgm.kafka.clients import open_admin, reach

    try:
        present = reach(open_admin(connection, complaints), complaints, REACH_SECONDS).topics
    except BrokerError:
        if complaints.hopeless:
            raise
        view.say("Kafka is away: readings wait until it is back", "yellow")
        return
    wanted = (kind.topic for kind in (ProcessEvent, CallsEvent, CollectivesEvent, GpuEvent, HostEvent))
    missing = [topic for topic in wanted if topic not in present]
    if missing:
        hint = f"eacgm topics create --bootstrap {connection.bootstrap}"
        raise BrokerError(f"no topic {', '.join(missing)} at {connection.bootstrap}; run: {hint}")


def _backlog(spool: Path | None, megabytes: int | None) -> Backlog:
    from eacgm.kafka.backlog import MemoryBacklog
    from eacgm.kafka.spool import DiskBacklog

    if spool is None:
        return MemoryBacklog((megabytes or MEMORY_MB) * _MEGABYTE)
    return DiskBacklog(spool, (megabytes or 512) * _MEGABYTE)


def _counts(outbox: Outbox) -> str:
    return (
        f"{outbox.delivered:,} delivered, {outbox.waiting:,} waiting, "
        f"{outbox.failed:,} failed, {outbox.dropped:,} dropped"
    )
