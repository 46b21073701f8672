"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eacgm.config import Config, load
from eacgm.producers.budget import DEFAULT_PERCENT

if TYPE_CHECKING:
    from eacgm.producers.probe import Probe

Command = Callable[..., Any]

#: of a job's name
MAX_JOB_CHARACTERS = 200
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def config_options(command: Command) -> Command:
    """Add ``--config FILE`` and ``--set room.name=value``; the command gets ``config: Config``."""

    def finish(context: click.Context, _: click.Parameter, settings: tuple[str, ...]) -> Config:
        return load(context.params.pop("config_file", None), settings)

    command = click.option(
        "--set",
        "config",
        multiple=True,
        metavar="ROOM.NAME=VALUE",
        callback=finish,
        help="Change one setting, such as detect.hang_seconds=10; may be repeated.",
    )(command)
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        is_eager=True,
        expose_value=True,
        help="A TOML file of settings, one [room] each.",
    )(command)


def json_option(command: Command) -> Command:
    """Add ``--json``; the command gets ``as_json: bool``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON lines for machines.")(command)


def watching_options(command: Command) -> Command:
    """Add ``--cpu-budget`` and ``--torch-ops``; the command gets ``cpu_budget: float`` and ``torch_ops: str``."""
    command = click.option(
        "--torch-ops",
        type=click.Choice(["none", "all"]),
        default="none",
        show_default=True,
        help="Also trace PyTorch's operators; all slow a training step by some percent.",
    )(command)
    return click.option(
        "--cpu-budget",
        type=click.FloatRange(0.1, 10_000),
        default=DEFAULT_PERCENT,
        show_default=True,
        metavar="PERCENT",
        help="Of one core, agent and probes together; beyond it probes are taken off until there is room.",
    )(command)


def probes(torch_ops: str) -> tuple[Probe, ...]:
    """Return the table of functions to trace for ``--torch-ops``."""
    from eacgm.producers.probes import DEFAULT_PROBES, TORCH_OPS

    return (*DEFAULT_PROBES, TORCH_OPS) if torch_ops == "all" else DEFAULT_PROBES


def instant(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Convert an option's time, RFC 3339 or seconds since the Unix epoch, to UTC nanoseconds (a click callback)."""
    if text is None:
        return None
    try:
        return parse_instant_ns(text)
    except (ValueError, OverflowError):
        message = f"{text!r} is no time; expected RFC 3339 or seconds since 1970"
        raise click.BadParameter(message, context, parameter) from None


def job_name(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """Refuse a job's name that no line of text can show (a click callback)."""
    if text is not None and not (text.strip() and text.isprintable() and len(text) <= MAX_JOB_CHARACTERS):
        message = f"{text[:60]!r} is no name; expected 1 to {MAX_JOB_CHARACTERS} printable characters"
        raise click.BadParameter(message, context, parameter)
    return text


def parse_instant_ns(text: str) -> int:
    """Return the UTC nanoseconds of an RFC 3339 time or of seconds since the Unix epoch.

    A time without a zone is UTC. Raises ``ValueError`` for anything else.

    >>> parse_instant_ns("1970-01-01T00:02:00Z"), parse_instant_ns("120.5")
    (120000000000, 120500000000)
    """
    try:
        return round(float(text) * 1e9)
    except ValueError:
        moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(microseconds=1) * 1000
