"""``eacgm alerts``: what the workers found, as it comes, on the terminal or to those who page people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eacgm.cli.kafka_options import kafka_options
from eacgm.cli.options import instant, job_name, json_option
from eacgm.cli.output import note
from eacgm.cli.stopping import StopOrder, stopped_by_signals
from eacgm.errors import ConfigError

if TYPE_CHECKING:
    from eacgm.events import AlertEvent
    from eacgm.kafka.alert_reader import AlertReader
    from eacgm.kafka.connection import Connection
    from eacgm.sinks.forms import Form
    from eacgm.sinks.sending import Sending

SEVERITIES = ("info", "warning", "critical")
POLL_SECONDS = 0.5


@click.command()
@click.option("--follow", "ending", flag_value="follow", default=True, help="Go on until Ctrl-C (the default).")
@click.option("--exit-at-end", "ending", flag_value="end", help="End once everything that is there has been told.")
@click.option("--since", callback=instant, metavar="TIME", help="Leave out what was published before.")
@click.option("--job", callback=job_name, metavar="NAME", help="Only this job's.")
@click.option("--cause", "causes", multiple=True, metavar="NAME", help="Only of this cause; may be given again.")
@click.option("--severity", type=click.Choice(SEVERITIES), default="info", show_default=True, help="The least.")
@click.option("--topic", default="eacgm.alerts.v1", show_default=True, help="Where they are read from.")
@click.option(
    "--to",
    metavar="KIND=URL",
    help="Send them instead of printing them: alertmanager, webhook, slack or pagerduty; KIND=@FILE has the URL.",
)
@click.option("--group", metavar="NAME", help="With --to: whose place in the topic is kept [eacgm-KIND].")
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --to: a webhook's signing key, or PagerDuty's routing key.",
)
@click.option(
    "--refused",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --to: keep what the sink refuses for good, as JSON lines.",
)
@json_option
@kafka_options
def command(
    connection: Connection,
    ending: str,
    since: int | None,
    job: str | None,
    causes: tuple[str, ...],
    severity: str,
    topic: str,
    to: str | None,
    group: str | None,
    secret_file: Path | None,
    refused: Path | None,
    as_json: bool,
) -> None:
    """Print the alerts that workers write to Kafka, each once, as they come; or send them to who pages people.

    Without --since all that the topic holds come first. Brokers that go away are waited for, and so is the sink of
    --to; a group goes on where it was, also after kill -9.

    \b
    Example:
      eacgm alerts --bootstrap kafka:9092 --exit-at-end --since 2026-01-01T00:00:00Z --json
      eacgm alerts --bootstrap kafka:9092 --follow --severity critical
      eacgm alerts --bootstrap kafka:9092 --to alertmanager=http://alertmanager:9093
      eacgm alerts --bootstrap kafka:9092 --to pagerduty --secret-file routing-key --severity critical
    """  # noqa: D301 - click reads the backspace as: keep these lines
    from eacgm.cli.live import print_alert
    from eacgm.kafka.alert_reader import AlertReader

    def wanted(alert: AlertEvent) -> bool:
        grave = alert.severity in SEVERITIES[SEVERITIES.index(severity) :]
        return (job is None or alert.job == job) and grave and (not causes or alert.cause in causes)

    form = _form(to, secret_file, group=group, refused=refused, as_json=as_json)
    own = None if form is None else group or f"eacgm-{form.address.kind}"
    with AlertReader(connection, topic=topic, since_ns=since, group=own) as reader, stopped_by_signals() as stop:
        batches = _batches(reader, stop, follow=ending == "follow")
        if form is not None:
            _send(batches, reader, form, refused, wanted, stop)
        else:
            for batch in batches:
                for alert in filter(wanted, batch):
                    print_alert(alert, as_json=as_json)
        if reader.dead:
            note(f"{reader.dead:,} messages were no alerts and were left out")


def _form(
    to: str | None, secret_file: Path | None, *, group: str | None, refused: Path | None, as_json: bool
) -> Form | None:
    """Return how the sink is told, None where alerts are printed; raises ``click.UsageError``."""
    if to is None:
        if secret_file is not None or group is not None or refused is not None:
            raise click.UsageError("--secret-file, --group and --refused go with --to")
        return None
    if as_json:
        raise click.UsageError("--json prints, --to sends; leave one of them out")
    from eacgm.sinks.address import parse, read_secret
    from eacgm.sinks.forms import Form

    try:
        return Form(parse(to), None if secret_file is None else read_secret(secret_file))
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


def _batches(reader: AlertReader, stop: StopOrder, *, follow: bool) -> Iterator[list[AlertEvent]]:
    """Yield what is there, then, if told to follow, what comes: also an empty batch twice a second."""
    for batch in reader.to_the_end():
        if stop.is_set():
            return
        yield batch
    while follow and not stop.is_set():
        yield reader.poll(POLL_SECONDS)


def _send(
    batches: Iterable[list[AlertEvent]],
    reader: AlertReader,
    form: Form,
    refused: Path | None,
    wanted: Callable[[AlertEvent], bool],
    stop: StopOrder,
) -> None:
    from eacgm.sinks.courier import Courier
    from eacgm.sinks.sending import Sending

    courier = Courier(form.address, refused=refused, tell=note, wait=stop.wait)
    sending = Sending(form, courier)
    note(f"sending to {form.address}; Ctrl-C ends it")
    for batch in batches:
        sending.learn(filter(wanted, reader.known))
        reader.known.clear()
        told = (_told(sending, reader, batch, number) for number, alert in enumerate(batch) if wanted(alert))
        if not all(told):
            break
        reader.commit()
        if not sending.remind():
            break
    note(f"{courier.delivered:,} posts delivered, {courier.retried:,} tries repeated, {courier.refused:,} refused")


def _told(sending: Sending, reader: AlertReader, batch: list[AlertEvent], number: int) -> bool:
    """Deliver one alert of a batch and note it at once, so that whoever goes on does not repeat it."""
    if not sending.tell(batch[number]):
        return False
    reader.commit(batch[number + 1 :])
    return True
