"""``eacgm doctor``: what works on this machine, and how to mend what does not."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from eacgm.cli.checks import LIMITED, MISSING, OK, Check, all_checks
from eacgm.cli.options import json_option
from eacgm.cli.output import print_json
from eacgm.errors import UnsupportedError

_COLOURS = {OK: "green", LIMITED: "yellow", MISSING: "red"}


@click.command(name="doctor")
@click.option("--bootstrap", metavar="HOST:PORT", help="Also ask whether a Kafka broker answers there.")
@json_option
def command(bootstrap: str | None, as_json: bool) -> None:
    """Say what works on this machine and how to mend what does not.

    Exits 0 if the demo can run live (and the broker answers, where one is named), else 1.

    \b
    Example:
      sudo eacgm doctor
      eacgm doctor --json | jq 'select(.status == "missing")'
    """  # noqa: D301 - click reads the backspace as: keep these lines
    failed = []
    for check in all_checks(bootstrap):
        if as_json:
            print_json(asdict(check))
        else:
            click.echo(_line(check))
        if check.status == MISSING and check.name in ("live demo", "kafka"):
            failed.append(check)
    if failed:
        raise UnsupportedError("; ".join(_sentence(check) for check in failed))


def _line(check: Check) -> str:
    status = check.status.ljust(8)
    colour = _COLOURS.get(check.status)
    if colour and not os.environ.get("NO_COLOR"):
        status = click.style(status, fg=colour)
    remedy = f"\n{'':22}-> {check.remedy}" if check.remedy else ""
    return f"{status} {check.name:12} {check.detail}{remedy}"


def _sentence(check: Check) -> str:
    return f"{check.name} {check.detail}" + (f" ({check.remedy})" if check.remedy else "")
