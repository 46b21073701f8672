"""``eacgm demo``: a real job, a planted fault, the alert."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from eacgm.cli.live import LiveView, Numbers, alert_line
from eacgm.cli.options import config_options, json_option
from eacgm.cli.output import print_json
from eacgm.config import Config
from eacgm.demo.faults import KINDS
from eacgm.demo.play import Verdict
from eacgm.errors import UnsupportedError, UsageError
from eacgm.events import AlertEvent, Event

N_RANKS = 4
LIMIT_SECONDS = 180.0
#: recorded seconds a second on a terminal, where somebody watches
RECORDED_SPEED = 20.0


class DemoScreen:
    """Shows a demo: lines and a live table for people, or with ``as_json`` alert lines alone on standard output."""

    def __init__(self, view: LiveView, *, as_json: bool) -> None:
        self._view = view
        self._as_json = as_json
        self._numbers = Numbers()

    def say(self, text: str) -> None:
        """Tell one line about the demo itself."""
        self._view.say(text, "bold" if text.startswith("FAULT") else None)

    def alert(self, alert: AlertEvent, delay_seconds: float | None) -> None:
        """Tell an alert, and how long after the fault it came."""
        if self._as_json:
            from eacgm.streams.alert import to_json

            print_json(to_json(alert))
        text, style = alert_line(alert)
        delay = "" if delay_seconds is None else f" [{delay_seconds:.1f} s after the fault]"
        self._view.say(text + delay, style)

    def see_input(self, event: Event) -> None:
        """Count a message on its way into the pipeline."""
        self._numbers.see_input(event)

    def see_output(self, event: Event, scores: list[float]) -> None:
        """Take note of a frame or an alert."""
        self._numbers.see_output(event)
        self._numbers.scores[event.job] = scores

    def show(self, activity: str) -> None:
        """Refresh the live numbers."""
        self._view.show(self._numbers, activity)


@click.command()
@click.option("--fault", type=click.Choice(KINDS), default="slow", show_default=True, help="What is done to one rank.")
@click.option("--rank", type=click.IntRange(0, N_RANKS - 1), default=2, show_default=True, help="Which rank.")
@click.option("--live", "source", flag_value="live", help="Only live: fail where that cannot be.")
@click.option("--recorded", "source", flag_value="recorded", help="Replay a recorded demo instead.")
@click.option("--python", metavar="PATH", help="A Python with torch >= 1.13 for the job.")
@click.option("--record", type=click.Path(path_type=Path), metavar="DIR", help="Keep what was seen in a new folder.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=10.0),
    default=LIMIT_SECONDS,
    show_default=True,
    help="The longest that a live demo may take.",
)
@config_options
@json_option
def command(
    fault: str,
    rank: int,
    source: str | None,
    python: str | None,
    record: Path | None,
    seconds: float,
    config: Config,
    as_json: bool,
) -> int:
    """Train a real model on four ranks, harm one of them from outside, and name it.

    Starts a DistributedDataParallel job that knows nothing of eACGM, watches it, waits for the detector's warm-up,
    plants a fault in one rank, and shows the alert and its resolution. The exit status is 0 only if the right rank and
    the right cause were named, and nothing else. Where eBPF or torch is not to be had, a recorded demo is shown.

    \b
    slow    one rank gets a fraction of the CPU that it needs
    pause   one rank is stopped by a signal, and woken later
    data    one rank's batches come late
    none    nothing: no alert may come

    \b
    Example:
      eacgm demo
      eacgm demo --fault pause --rank 1 --record /tmp/demo
    """  # noqa: D301 - click reads the backspace as: keep these lines
    if source == "recorded" and record is not None:
        raise UsageError("--record needs a live demo; leave out --recorded")
    with interruptible(), LiveView(sys.stderr if as_json else sys.stdout) as view:
        screen = DemoScreen(view, as_json=as_json)
        verdict = None
        if source != "recorded":
            try:
                verdict = perform_live(screen, fault, rank, python, record, seconds, config)
            except UnsupportedError as error:
                if source == "live" or record is not None:
                    raise
                screen.say(f"no live demo here: {error}; showing a recorded one")
        if verdict is None:
            verdict = perform_recorded(screen, fault, config)
        view.say(f"verdict: {verdict.text}", "bold green" if verdict.right else "bold red")
    return 0 if verdict.right else 1


def perform_live(
    screen: DemoScreen, fault: str, rank: int, python: str | None, record: Path | None, seconds: float, config: Config
) -> Verdict:
    """Run the job and judge what was seen of it."""
    from eacgm.demo.interpreters import find
    from eacgm.demo.stage import Performance, Stage

    interpreter = find(python)
    whom = "no rank" if fault == "none" else f"rank {rank} of {N_RANKS}"
    screen.say(f"fault {fault!r} on {whom}; this takes at most {seconds:.0f} s")
    return Stage(Performance(fault, rank, seconds, config, interpreter, record), screen).perform()


def perform_recorded(screen: DemoScreen, fault: str, config: Config) -> Verdict:
    """Replay the shipped recording and judge what was seen in it."""
    from eacgm.demo.recorded import Projection, shipped_recording

    with shipped_recording(fault) as folder:
        speed = RECORDED_SPEED if sys.stdout.isatty() else None
        return Projection(folder, config, screen, speed).perform()


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does, so that everything is undone."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signs = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup's wish
        signs.append(signal.SIGHUP)
    before = {sign: signal.signal(sign, interrupt) for sign in signs}
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
