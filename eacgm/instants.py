"""Instants as people and other programs read them."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(time_ns: int) -> str:
    """Return UTC nanoseconds as an RFC 3339 instant with milliseconds.

    >>> rfc3339(1_500_000_000)
    '1970-01-01T00:00:01.500Z'
    """
    seconds, rest_ns = divmod(time_ns, 1_000_000_000)
    instant = datetime.fromtimestamp(seconds, UTC)
    return f"{instant:%Y-%m-%dT%H:%M:%S}.{rest_ns // 1_000_000:03d}Z"


def parse_rfc3339(text: str) -> int:
    """Return an RFC 3339 instant as UTC nanoseconds in whole milliseconds; raises ``ValueError``, ``TypeError``.

    >>> parse_rfc3339("1970-01-01T00:00:01.500Z")
    1500000000
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no zone; expected such as 2026-01-01T00:00:00Z")
    return round(moment.timestamp() * 1000) * 1_000_000
