"""Live numbers of a running pipeline: a table that refreshes on a terminal, a plain line every few seconds elsewhere.

``Numbers`` counts what passes by and knows no clock; ``LiveView`` shows it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

import numpy as np

from eacgm.cli.output import print_json, print_line, printable
from eacgm.events import AlertEvent, CallsEvent, Event, FrameEvent, ProcessEvent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

LINE_SECONDS = 5.0
REFRESHES_PER_SECOND = 2.0
#: a job of which no rank showed itself for so long is no longer shown
FORGOTTEN_NS = 60_000_000_000
#: the pipeline tells of a silent job for an hour; it must not pass for a new one meanwhile
REMEMBERED_NS = 7_200_000_000_000
#: jobs that a line tells rank by rank; more would make it unreadable
LINE_JOBS = 4
#: columns of the table of ranks: title, feature, factor, decimals
COLUMNS = (
    ("step ms", "step_seconds", 1e3, 0),
    ("backward ms", "backward_seconds", 1e3, 0),
    ("collective ms", "collective_seconds", 1e3, 0),
    ("data wait ms", "data_wait_seconds", 1e3, 0),
    ("CPU %", "cpu_seconds", 1e2, 0),
    ("run queue ms", "run_queue_wait_seconds", 1e3, 0),
)


@dataclass(slots=True)
class Numbers:
    """What has passed by: messages, traced calls, losses, windows, and each job's newest frame.

    ``scores`` has each job's mixture scores (nats, NaN while it cannot tell), one per row of its newest frame.
    """

    n_events: int = 0
    n_calls: int = 0
    n_lost: int = 0
    n_windows: int = 0
    n_open_incidents: int = 0
    world_size: dict[str, int] = field(default_factory=dict)
    frames: dict[str, FrameEvent] = field(default_factory=dict)
    scores: dict[str, list[float]] = field(default_factory=dict)
    _alive_ns: dict[str, int] = field(default_factory=dict)

    def see_input(self, event: Event) -> None:
        """Count a message on its way into the pipeline."""
        self.n_events += 1
        self.n_lost += event.lost
        if isinstance(event, CallsEvent):
            self.n_calls += int(event.count.sum())
        elif isinstance(event, ProcessEvent) and event.world_size:
            self.world_size[event.job] = event.world_size

    def see_output(self, event: Event) -> None:
        """Take note of a frame or an alert."""
        if isinstance(event, FrameEvent):
            self.n_windows += 1
            self._see_frame(event)
        elif isinstance(event, AlertEvent):
            self.n_open_incidents += {"open": 1, "resolved": -1}.get(event.state, 0)

    def _see_frame(self, frame: FrameEvent) -> None:
        if any(frame.present) or frame.job not in self._alive_ns:
            self._alive_ns[frame.job] = frame.end_ns
        if frame.end_ns - self._alive_ns[frame.job] < FORGOTTEN_NS:
            self.frames[frame.job] = frame
        for job in [job for job, alive in self._alive_ns.items() if frame.end_ns - alive >= FORGOTTEN_NS]:
            # what has ended is told as silent for as long as the pipeline waits for it: no reason to show it
            self.frames.pop(job, None)
            self.scores.pop(job, None)
            self.world_size.pop(job, None)
            if frame.end_ns - self._alive_ns[job] >= REMEMBERED_NS:
                del self._alive_ns[job]

    def ranks_seen(self) -> str:
        """Return how many ranks the newest frames show, of how many.

        >>> Numbers().ranks_seen()
        '0'
        """
        present = sum(int(np.sum(frame.present)) for frame in self.frames.values())
        expected = sum(max(len(frame.ranks), self.world_size.get(job, 0)) for job, frame in self.frames.items())
        return f"{present}/{expected}" if expected else "0"


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank's line of the table, as text."""

    name: str
    present: bool
    cells: tuple[str, ...]
    score: str


def rank_rows(frame: FrameEvent, scores: list[float]) -> list[RankRow]:
    """Return the table's lines for a frame; what was not told is a dash."""
    columns = {name: index for index, name in enumerate(frame.features)}
    rows = []
    for position, rank in enumerate(frame.ranks.tolist()):
        cells = tuple(
            _cell(frame.values[position, columns[name]] * factor if name in columns else np.nan, decimals)
            for _, name, factor, decimals in COLUMNS
        )
        score = _cell(scores[position], 1) if position < len(scores) else "-"
        rows.append(RankRow(str(rank), bool(frame.present[position]), cells, score))
    return rows


def _cell(value: float, decimals: int) -> str:
    """Return a number as text, a dash for one that was not told.

    >>> _cell(12.34, 1), _cell(float("nan"), 1)
    ('12.3', '-')
    """
    return f"{value:.{decimals}f}" if np.isfinite(value) else "-"


class LiveView:
    """Shows ``Numbers`` while a command works; a context manager, for several threads.

    On a terminal a table is refreshed in place and everything ``say`` prints scrolls above it; elsewhere ``show``
    prints a line every ``LINE_SECONDS``. Colours only on a terminal and without NO_COLOR (rich sees to it).
    ``console`` draws on something else than the stream; ``clock`` returns seconds since any moment.
    """

    def __init__(
        self, stream: TextIO, *, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or _console(stream)
        self._terminal = self._console.is_terminal
        self._clock = clock
        self._lock = threading.Lock()
        self._started = self._line_at = clock()
        self._rate_at, self._rate_of, self._rate = self._started, 0, 0.0
        self._numbers: Numbers | None = None
        self._activity = ""
        self._live: object | None = None

    def __enter__(self) -> Self:
        """Begin to show."""
        if self._terminal:
            from rich.live import Live

            live = Live(
                console=self._console,
                refresh_per_second=REFRESHES_PER_SECOND,
                get_renderable=self.table,
                # records that go into a file or a pipe must not land on the terminal instead
                redirect_stdout=sys.stdout.isatty(),
            )
            live.start()
            self._live = live
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last table standing and the terminal as it was."""
        if self._live is not None:
            self._live.stop()  # type: ignore[attr-defined]
            self._live = None

    def say(self, text: str, style: str | None = None) -> None:
        """Print one line."""
        with self._lock:
            self._console.print(printable(text), style=style, markup=False, highlight=False)

    def show(self, numbers: Numbers, activity: str) -> None:
        """Show the numbers, and what the command is doing."""
        now = self._clock()
        with self._lock:
            self._numbers, self._activity = numbers, activity
            if now - self._rate_at >= 1.0:
                self._rate = (numbers.n_events - self._rate_of) / (now - self._rate_at)
                self._rate_at, self._rate_of = now, numbers.n_events
        if not self._terminal and now - self._line_at >= LINE_SECONDS:
            self._line_at = now
            self.say(self._line(numbers, activity))

    def _headline(self, numbers: Numbers) -> dict[str, str]:
        return {
            "ranks": numbers.ranks_seen(),
            "events/s": f"{self._rate:.0f}",
            "calls": f"{numbers.n_calls:,}",
            "lost": f"{numbers.n_lost:,}",
            "windows": f"{numbers.n_windows:,}",
            "incidents open": str(numbers.n_open_incidents),
        }

    def _line(self, numbers: Numbers, activity: str) -> str:
        words = ", ".join(f"{name} {value}" for name, value in self._headline(numbers).items())
        parts = [f"{self._clock() - self._started:4.0f} s  {activity}: {words}"]
        for job, frame in list(numbers.frames.items())[:LINE_JOBS]:
            rows = rank_rows(frame, numbers.scores.get(job, []))
            # a job of a thousand ranks is not told rank by rank in a line
            if len(rows) <= 16:
                parts.append("step ms " + " ".join(f"{row.name}:{row.cells[0]}" for row in rows))
                parts.append("score " + " ".join(f"{row.name}:{row.score}" for row in rows))
        if len(numbers.frames) > LINE_JOBS:
            parts.append(f"{len(numbers.frames) - LINE_JOBS} more jobs")
        return " | ".join(parts)

    def table(self) -> Table:
        """Return the table of the newest numbers."""
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False, title_justify="left", caption_justify="left")
        with self._lock:
            numbers, activity = self._numbers, self._activity
        if numbers is None:
            return table
        headline = "  ".join(f"{name} {value}" for name, value in self._headline(numbers).items())
        table.title = f"{self._clock() - self._started:.0f} s  {activity}"
        table.caption = headline
        for title in ("job", "rank", *(title for title, *_ in COLUMNS), "score"):
            table.add_column(title, justify="right")
        for job, frame in list(numbers.frames.items()):
            _add_rows(table, job, rank_rows(frame, numbers.scores.get(job, [])))
        return table


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    # Elsewhere than on a terminal lines are for other programs: they are never folded.
    return Console(file=stream) if stream.isatty() else Console(file=stream, width=100_000, no_color=True)


def _add_rows(table: Table, job: str, rows: list[RankRow], most: int = 32) -> None:
    from rich.text import Text

    for row in rows[:most]:
        cells = row.cells if row.present else ("silent", *["-"] * (len(row.cells) - 1))
        table.add_row(Text(printable(job)), row.name, *cells, row.score, style=None if row.present else "yellow")
    if len(rows) > most:
        table.add_row(Text(printable(job)), f"... {len(rows) - most} more", *["" for _ in rows[0].cells], "")


def alert_line(alert: AlertEvent) -> tuple[str, str]:
    """Return an alert as a line for people, and its style."""
    ranks = ", ".join(str(rank) for rank in alert.ranks.tolist())
    whom = f" rank{'s' if len(alert.ranks) > 1 else ''} {ranks}" if ranks else ""
    colour = {"critical": "bold red", "warning": "bold yellow", "info": "cyan"}
    style = "bold green" if alert.state == "resolved" else colour.get(alert.severity, "bold")
    return f"ALERT {alert.state} [{alert.severity}] {alert.cause}{whom}: {alert.summary}", style


def print_alert(alert: AlertEvent, *, as_json: bool) -> None:
    """Print an alert as a record on standard output: one line for people, or its JSON."""
    from eacgm.instants import rfc3339
    from eacgm.streams.alert import to_json

    if as_json:
        print_json(to_json(alert))
        return
    text, style = alert_line(alert)
    print_line(f"{rfc3339(alert.published_ns)}  {text}", style)
