"""Two lists of incidents side by side: which are new, which are gone, which are not the same any more. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from eacgm.events import AlertEvent

#: incidents of the same job that are so close are taken for the same though they are called by other names
NEAR_NS = 30_000_000_000


@dataclass(frozen=True, slots=True)
class Incident:
    """What the alerts of one incident say together.

    Times are UTC ns in whole milliseconds; ``resolved_ns`` is None while it is open.
    """

    incident: str
    job: str
    cause: str
    severity: str
    ranks: tuple[int, ...]
    started_ns: int
    detected_ns: int
    resolved_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One incident that differs; ``changes`` names the fields of a changed one with their old and new values."""

    kind: Literal["new", "gone", "changed"]
    incident: Incident
    changes: dict[str, tuple[Any, Any]]


def incidents(alerts: Iterable[AlertEvent]) -> list[Incident]:
    """Return the incidents that alerts tell of, in the order of their beginnings; repetitions change nothing."""
    found: dict[tuple[str, str], Incident] = {}
    for alert in alerts:
        key = (alert.job, alert.incident)
        before = found.get(key)
        if before is not None and before.resolved_ns is not None and alert.state != "resolved":
            continue  # a repetition of what came before the end
        detected_ns = alert.detected_at_ns if before is None else min(before.detected_ns, alert.detected_at_ns)
        resolved_ns = alert.resolved_at_ns if alert.state == "resolved" else None
        found[key] = Incident(
            incident=alert.incident,
            job=alert.job,
            cause=alert.cause,
            severity=alert.severity,
            ranks=tuple(sorted(alert.ranks.tolist())),
            started_ns=_whole_ms(alert.started_at_ns),
            detected_ns=_whole_ms(detected_ns),
            resolved_ns=None if resolved_ns is None else _whole_ms(resolved_ns),
        )
    return sorted(found.values(), key=_order)


def compare(old: Sequence[Incident], new: Sequence[Incident]) -> list[Difference]:
    """Return how the new incidents differ from the old ones, in the order of their beginnings.

    Incidents of the same name are the same. Those that are left are paired where job and a rank (or nobody in
    particular on both sides) agree and their times touch, the nearest beginnings first: another setting may begin an
    incident a little earlier, and so call it otherwise.
    """
    olds = {(one.job, one.incident): one for one in old}
    news = {(one.job, one.incident): one for one in new}
    pairs = [(olds.pop(key), news.pop(key)) for key in list(olds) if key in news]
    near = sorted(
        (abs(before.started_ns - after.started_ns), before_key, after_key)
        for before_key, before in olds.items()
        for after_key, after in news.items()
        if _alike(before, after)
    )
    for _, before_key, after_key in near:
        if before_key in olds and after_key in news:
            pairs.append((olds.pop(before_key), news.pop(after_key)))
    found = [Difference("gone", one, {}) for one in olds.values()]
    found += [Difference("new", one, {}) for one in news.values()]
    for before, after in pairs:
        changes = _changes(before, after)
        if changes:
            found.append(Difference("changed", after, changes))
    return sorted(found, key=lambda difference: (*_order(difference.incident), difference.kind))


def _whole_ms(time_ns: int) -> int:
    """Return a time as it is printed, so that what was read back compares with what was not."""
    return time_ns // 1_000_000 * 1_000_000


def _order(one: Incident) -> tuple[int, str, str]:
    return one.started_ns, one.job, one.incident


def _alike(one: Incident, other: Incident) -> bool:
    same_ranks = bool(set(one.ranks) & set(other.ranks)) or not (one.ranks or other.ranks)
    return one.job == other.job and same_ranks and _begins_before(one, other) and _begins_before(other, one)


def _begins_before(one: Incident, other: Incident) -> bool:
    """Whether one begins before the other has ended, or soon after."""
    return other.resolved_ns is None or one.started_ns <= other.resolved_ns + NEAR_NS


def _changes(before: Incident, after: Incident) -> dict[str, tuple[Any, Any]]:
    named_alike = replace(before, incident=after.incident)
    names = [field.name for field in fields(Incident)]
    found = {name: (getattr(named_alike, name), getattr(after, name)) for name in names}
    return {name: values for name, values in found.items() if values[0] != values[1]}
