"""Alerts as JSON lines read back: what ``--json`` printed, by this version or an earlier one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from eacgm.errors import InputError
from eacgm.events import AlertEvent
from eacgm.instants import parse_rfc3339

_TEXTS = ("id", "incident", "job", "state", "severity", "cause", "layer", "node", "summary")


def read_alerts(path: Path) -> Iterator[AlertEvent]:
    """Yield the alerts of a file of JSON lines; lines of other records (with ``difference`` or ``grade``) are left out.

    Raises ``InputError`` with the line's number for what is no alert.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    record = _object(line, path, number)
                    if record.keys().isdisjoint(("difference", "grade")):
                        yield _alert(record, path, number)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", path=str(path)) from None
    except UnicodeDecodeError:
        raise InputError("is no text; expected alerts as JSON lines", path=str(path)) from None


def _object(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InputError(f"is no JSON ({error})", path=str(path), place=f"line {number}") from None
    if not isinstance(record, dict):
        raise InputError("is no alert; expected an object", path=str(path), place=f"line {number}")
    return record


def _alert(record: dict[str, Any], path: Path, number: int) -> AlertEvent:
    texts: dict[str, Any] = {name: str(record.get(name) or "") for name in _TEXTS}
    try:
        resolved = record.get("resolved_at")
        return AlertEvent(
            start_ns=0,
            end_ns=0,
            **texts,
            incarnation=int(record.get("incarnation") or 0),
            ranks=np.array([int(rank) for rank in record["ranks"]], dtype=np.int64),
            started_at_ns=parse_rfc3339(record["started_at"]),
            detected_at_ns=parse_rfc3339(record["detected_at"]),
            resolved_at_ns=None if resolved is None else parse_rfc3339(resolved),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        reason = f"{type(error).__name__}: {error}"
        message = f"is no alert ({reason}); expected what --json prints"
        raise InputError(message, path=str(path), place=f"line {number}") from None
