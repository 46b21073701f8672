"""``eacgm alerts``: what the workers found, as it comes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import click

from eacgm.cli.kafka_options import kafka_options
from eacgm.cli.options import instant, job_name, json_option
from eacgm.cli.output import note
from eacgm.cli.run import stopped_by_signals

if TYPE_CHECKING:
    from eacgm.events import AlertEvent
    from eacgm.kafka.connection import Connection

SEVERITIES = ("info", "warning", "critical")
POLL_SECONDS = 0.5


@click.command()
@click.option("--follow", "ending", flag_value="follow", default=True, help="Go on until Ctrl-C (the default).")
@click.option("--exit-at-end", "ending", flag_value="end", help="End once everything that is there has been printed.")
@click.option("--since", callback=instant, metavar="TIME", help="Leave out what was published before.")
@click.option("--job", callback=job_name, metavar="NAME", help="Only this job's.")
@click.option("--severity", type=click.Choice(SEVERITIES), default="info", show_default=True, help="The least.")
@click.option("--topic", default="eacgm.alerts.v1", show_default=True, help="Where they are read from.")
@json_option
@kafka_options
def command(
    connection: Connection,
    ending: str,
    since: int | None,
    job: str | None,
    severity: str,
    topic: str,
    as_json: bool,
) -> None:
    """Print the alerts that workers write to Kafka, each once, as they come.

    Without --since all that the topic holds are printed first. Brokers that go away are waited for.

    \b
    Example:
      eacgm alerts --bootstrap kafka:9092 --exit-at-end --since 2026-01-01T00:00:00Z --json
      eacgm alerts --bootstrap kafka:9092 --follow --severity critical
    """  # noqa: D301 - click reads the backspace as: keep these lines
    from eacgm.cli.live import print_alert
    from eacgm.kafka.alert_reader import AlertReader

    def show(alert: AlertEvent) -> None:
        wanted = SEVERITIES[SEVERITIES.index(severity) :]
        if (job is None or alert.job == job) and alert.severity in wanted:
            print_alert(alert, as_json=as_json)

    stop = threading.Event()
    with AlertReader(connection, topic=topic, since_ns=since) as reader, stopped_by_signals(stop):
        for alert in reader.to_the_end():
            if stop.is_set():
                break
            show(alert)
        while ending == "follow" and not stop.is_set():
            for alert in reader.poll(POLL_SECONDS):
                show(alert)
        if reader.dead:
            note(f"{reader.dead:,} messages were no alerts and were left out")
