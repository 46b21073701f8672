"""What commands print: tables, JSON lines, and live numbers while they work.

Records go to standard output, everything else to standard error. Colours and live lines only on a terminal; NO_COLOR
is honoured.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import click

#: seconds between two refreshes on a terminal, and between two lines elsewhere
REFRESH_SECONDS = 0.1
LINE_SECONDS = 10.0


def printable(text: str) -> str:
    r"""Return text with escapes for what could move the cursor, colour the line or begin a new one.

    What events and files say is anybody's word; it must not be able to write on the terminal what it likes.

    >>> printable("rank \x1b[31m2\n, größer") == r"rank \x1b[31m2\n, größer"
    True
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def print_json(record: Mapping[str, Any]) -> None:
    """Print one record as one line of JSON, keys in the order given."""
    click.echo(json.dumps(record, separators=(",", ":"), allow_nan=False, default=_plain))


def _plain(value: Any) -> Any:
    """Return a numpy number as Python's own."""
    return value.item()


def print_table(rows: Sequence[Mapping[str, Any]], title: str | None = None) -> None:
    """Print rows as a table; the columns are the rows' keys in the order of their first sight."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(title=title, title_justify="left", box=box.SIMPLE, show_edge=False, pad_edge=False)
    for column in columns:
        numeric = all(isinstance(row.get(column), int | float | None) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(show(row.get(column))) for column in columns))
    console = Console() if sys.stdout.isatty() else Console(width=10_000, no_color=True)
    console.print(table)


def print_line(text: str, style: str) -> None:
    """Print one line, in a rich style on a terminal."""
    if not sys.stdout.isatty():
        click.echo(printable(text))
        return
    from rich.console import Console

    Console().print(printable(text), style=style, markup=False, highlight=False)


def show(value: Any) -> str:
    """Return a cell as people read it: three or four digits for numbers, nothing for None.

    >>> show(1234567), show(0.0012345), show(None), show(True), show([3, 1])
    ('1,234,567', '0.001234', '', 'yes', '3, 1')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return printable(", ".join(str(item) for item in value))
    return printable(str(value))


def note(text: str) -> None:
    """Say something beside the records, on standard error."""
    click.echo(printable(text), err=True)


class Progress:
    """Live numbers on standard error: one refreshed line on a terminal, else a plain line every ten seconds.

    >>> with Progress("reading") as progress:
    ...     progress.update(rows=10)
    """

    def __init__(self, activity: str) -> None:
        self._activity = activity
        self._live = sys.stderr.isatty()
        self._started = self._last = time.monotonic()
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._erase()

    def update(self, **numbers: Any) -> None:
        """Show these numbers, unless the last ones are still fresh."""
        now = time.monotonic()
        if now - self._last < (REFRESH_SECONDS if self._live else LINE_SECONDS):
            return
        self._last = now
        parts = ", ".join(f"{name.replace('_', ' ')} {show(value)}" for name, value in numbers.items())
        line = f"{self._activity} {now - self._started:.0f} s: {parts}"
        if not self._live:
            note(line)
            return
        width = max(20, _columns() - 1)
        line = line[:width]
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = len(line)

    def pause(self) -> None:
        """Clear the live line, so that something else can be printed."""
        self._erase()

    def _erase(self) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns
