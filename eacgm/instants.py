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
