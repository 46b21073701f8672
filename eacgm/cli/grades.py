"""What a replay is worth against labels: read from a file of JSON lines, told as a table or records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eacgm.cli.output import note, print_json, print_table, show
from eacgm.errors import InputError
from eacgm.instants import parse_rfc3339, rfc3339

if TYPE_CHECKING:
    from eacgm.events import AlertEvent
    from eacgm.streams.grading import Grade, Label

#: an incident that is detected so long after a fault's end still is of this fault
GRACE_NS = 30_000_000_000
_FIELDS = {"started_at", "ended_at", "job", "cause", "ranks"}
_EXPECTED = 'expected an object such as {"started_at":"2026-01-01T00:02:00Z","ended_at":null,"ranks":[2]}'


def read_labels(path: Path) -> list[Label]:
    """Return the labels of a file of JSON lines, or those of a simulation's labels.json.

    Raises ``InputError`` with the line's number for what is no label.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", path=str(path)) from None
    except UnicodeDecodeError:
        raise InputError(f"is no text; {_EXPECTED}", path=str(path)) from None
    records = _planted(text)
    if records is not None:
        return [_label(record, str(path), f"fault {number}") for number, record in enumerate(records, 1)]
    lines = enumerate(text.splitlines(), 1)
    return [_label(_parsed(line), str(path), f"line {number}") for number, line in lines if line.strip()]


def _parsed(line: str) -> Any:
    """Return what a line holds; a line that is no JSON is a text, and so no label."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line


def _planted(text: str) -> list[dict[str, Any]] | None:
    """Return the faults that `eacgm simulate` says it has planted as records of ours, None if this is no such file."""

    def instant(seconds: float) -> str:
        return rfc3339(round((told["start_s"] + seconds) * 1000) * 1_000_000)

    try:
        told = json.loads(text)
        return [
            {
                "started_at": instant(fault["onset_s"]),
                "ended_at": instant(fault["end_s"]),
                "job": told["job"],
                "cause": fault["fault"],
                "ranks": fault["ranks"],
            }
            for fault in told["faults"]
        ]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _label(record: Any, path: str, place: str) -> Label:
    from eacgm.streams.grading import Label

    try:
        if not isinstance(record, dict):
            raise ValueError("is no object")
        if not record.keys() <= _FIELDS:
            raise ValueError(f"fields {', '.join(record)}")
        started_ns, ended = parse_rfc3339(record["started_at"]), record.get("ended_at")
        ended_ns = None if ended is None else parse_rfc3339(ended)
        ranks = record.get("ranks") or []
        texts = [record.get("job"), record.get("cause")]
        if not all(text is None or isinstance(text, str) for text in texts):
            raise ValueError("job and cause are texts")
        if not isinstance(ranks, list) or not all(type(rank) is int and rank >= 0 for rank in ranks):
            raise ValueError("ranks is a list of whole numbers")
        if ended_ns is not None and ended_ns < started_ns:
            raise ValueError("it ends before it begins")
        return Label(started_ns, ended_ns, texts[0], texts[1], tuple(ranks))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"is no label ({reason}); {_EXPECTED}", path=path, place=place) from None


def print_grade(labels: list[Label], alerts: Iterable[AlertEvent], *, as_json: bool) -> None:
    """Print how well alerts fit the labels: a record for each label and false alarm, then the ratios."""
    from eacgm.streams.comparison import incidents
    from eacgm.streams.grading import grade

    found = grade(labels, incidents(alerts), grace_ns=GRACE_NS)
    summary = {
        "labels": len(labels),
        "incidents": found.n_incidents,
        "precision": found.precision,
        "recall": found.recall,
        "median_delay_seconds": found.delay_seconds,
    }
    if as_json:
        for record in _records(found):
            print_json(record)
        print_json({"grade": "summary", **summary})
        return
    rows = list(_records(found))
    if rows:
        print_table([{"": row.pop("grade"), **row} for row in rows])
    told = ", ".join(f"{name.replace('_', ' ')} {show(value)}" for name, value in summary.items())
    note(f"against the labels: {told}")


def _records(found: Grade) -> Iterator[dict[str, Any]]:
    for one in found.graded:
        label, incident = one.label, one.incident
        yield {
            "grade": "missed" if incident is None else "found",
            "started_at": rfc3339(label.started_ns),
            "job": label.job if incident is None else incident.job,
            "cause": label.cause if incident is None else incident.cause,
            "ranks": list(label.ranks if incident is None else incident.ranks),
            "incident": None if incident is None else incident.incident,
            "delay_seconds": one.delay_seconds,
        }
    for incident in found.unexplained:
        yield {
            "grade": "false",
            "started_at": rfc3339(incident.started_ns),
            "job": incident.job,
            "cause": incident.cause,
            "ranks": list(incident.ranks),
            "incident": incident.incident,
            "delay_seconds": None,
        }
