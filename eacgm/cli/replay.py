"""`eacgm replay`: a recording through the same detector, the same alerts every time."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eacgm.cli.differences import earlier_alerts, print_differences, second_topic
from eacgm.cli.grades import print_grade, read_labels
from eacgm.cli.options import config_options, instant, job_name, json_option
from eacgm.cli.output import Progress, note, show
from eacgm.cli.sources import check_order, opened
from eacgm.errors import InputError

if TYPE_CHECKING:
    from eacgm.config import Config
    from eacgm.streams.replay import Progress as ReplayProgress


@click.command("replay")
@click.argument("source")
@click.option("--since", callback=instant, metavar="TIME", help="Leave out what began before (RFC 3339 or seconds).")
@click.option("--until", callback=instant, metavar="TIME", help="Leave out what ended later (RFC 3339 or seconds).")
@click.option("--job", callback=job_name, metavar="NAME", help="Only this job.")
@click.option("--alerts-topic", metavar="TOPIC", help="Also write the alerts to this topic, made if need be.")
@click.option("--compare", metavar="OLD", help="Tell which incidents are new, gone, changed: JSON lines or a topic.")
@click.option(
    "--labels",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Known faults as JSON lines: tell precision, recall and delay.",
)
@config_options
@json_option
def command(
    source: str,
    since: int | None,
    until: int | None,
    job: str | None,
    alerts_topic: str | None,
    compare: str | None,
    labels: Path | None,
    config: Config,
    as_json: bool,
) -> None:
    """Run a recording through the detector and print its alerts; the same recording gives the same alerts.

    SOURCE is a folder that `eacgm run --record`, `eacgm record`, `eacgm import` or `eacgm simulate` wrote, or
    kafka://HOST:PORT, whose topics are read up to now; how to log in there is taken from EACGM_KAFKA_*. With --json,
    one alert a line on standard output, then one difference a line.

    \b
    Example:
      eacgm replay recording --since 2026-01-01T00:02:00Z --json
      eacgm replay kafka://kafka:9092 --since 2026-01-01T00:00:00Z --compare eacgm.alerts.v1
    """  # noqa: D301 - click reads the backspace as: keep these lines
    from eacgm.cli.live import print_alert
    from eacgm.events import AlertEvent, FrameEvent
    from eacgm.streams.replay import replay

    check_order(since, until)
    # first: a word that cannot be is told before an hour of work, not after it
    before = None if compare is None else earlier_alerts(source, compare)
    known = None if labels is None else read_labels(labels)
    alerts: list[AlertEvent] = []
    incidents = windows = 0
    last: ReplayProgress | None = None
    with ExitStack() as stack:
        stack.enter_context(told_warnings())
        write = stack.enter_context(second_topic(source, alerts_topic)) if alerts_topic else None
        events = stack.enter_context(opened(source, since, until, job))
        progress = stack.enter_context(Progress("replaying"))

        def on_progress(now: ReplayProgress) -> None:
            nonlocal last
            last = now
            progress.update(**_numbers(now, windows), incidents=incidents)

        for event in replay(events, config, since_ns=since, until_ns=until, job=job, on_progress=on_progress):
            if isinstance(event, FrameEvent):
                windows += 1
            elif isinstance(event, AlertEvent):
                alerts.append(event)
                incidents += event.state == "open"
                progress.pause()
                print_alert(event, as_json=as_json)
                if write is not None:
                    write(event)
    assert last is not None
    if not last.events:
        raise InputError(_nothing_there(since, until, job), path=source)
    if not as_json:
        note(f"incidents: {show(incidents)}, in {_closing(last, windows)}")
    if compare is not None and before is not None:
        stretch = (since, min(until or last.time_ns, last.time_ns))
        print_differences(compare, before, alerts, stretch, as_json=as_json)
    if known is not None:
        print_grade(known, alerts, as_json=as_json)


def _nothing_there(since: int | None, until: int | None, job: str | None) -> str:
    whose = "no event" if job is None else f"no event of a job {job!r}"
    if since is None and until is None:
        return f"{whose} lies there; look for the job's name"
    return f"{whose} lies between --since and --until; widen them" + (", or look for the job's name" if job else "")


def _numbers(now: ReplayProgress, windows: int) -> dict[str, Any]:
    told = now.statistics
    share = {} if now.share is None else {"read": f"{now.share:.0%}"}
    return {**share, "events": now.events, "ranks": told.ranks, "windows": windows, "lost": told.lost}


def _closing(last: ReplayProgress, windows: int) -> str:
    told = last.statistics
    counts = {"lost": told.lost, "late": told.late, "refused": told.refused, "duplicates": told.duplicates}
    missed = "".join(f", {show(count)} {name}" for name, count in counts.items() if count)
    return f"{show(windows)} windows of {show(told.ranks)} ranks ({show(last.events)} events{missed})"


@contextmanager
def told_warnings() -> Iterator[None]:
    """Say warnings about a recording, such as a file that was cut off, in one line each on standard error.

    Those of libraries are no user's business; ``EACGM_DEBUG=1`` shows them too.
    """
    from eacgm.schemas.recording import RecordingWarning

    def tell(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        if issubclass(category, RecordingWarning) or os.environ.get("EACGM_DEBUG"):
            note(f"eacgm: warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", RecordingWarning)
        warnings.showwarning = tell
        yield
