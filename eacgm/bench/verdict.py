"""Judging a case: do its alerts meet what was expected? Pure, so that hand-made alerts test it.

The rules: an expected alert is met by an incident that is detected within ``[onset, onset + max_delay]``, carries an
acceptable cause by then and, where ranks are given, names at least one of them and no other. A case passes when all
its alerts are met, no more than ``max_incidents`` incidents were opened and none ever carried a forbidden cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eacgm.events import AlertEvent

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ExpectedAlert:
    """One alert that a case must raise; ``ranks`` is None where the culprit is not judged."""

    causes: tuple[str, ...]
    ranks: tuple[int, ...] | None
    onset_s: float
    max_delay_s: float


@dataclass(frozen=True, slots=True)
class Expectation:
    """All that a case expects; no alert is a control, which passes in silence."""

    alerts: tuple[ExpectedAlert, ...]
    max_incidents: int
    forbidden_causes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident as the alerts told it: when each message came, and what it said; times in seconds since 1970."""

    detected_s: float
    messages: tuple[tuple[float, str, tuple[int, ...]], ...]
    summary: str

    @property
    def causes(self) -> tuple[str, ...]:
        """Every cause that it ever carried, in order."""
        return tuple(dict.fromkeys(cause for _, cause, _ in self.messages))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The culprits as last told."""
        return self.messages[-1][2]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one case went.

    ``delays_s`` has an entry per expected alert: seconds from the onset until the right verdict stood, None if missed.
    ``extra`` counts incidents beyond the limit, ``forbidden`` the causes that must not have appeared and did.
    """

    case: str
    seconds: float
    delays_s: tuple[float | None, ...]
    incidents: tuple[Incident, ...]
    extra: int
    forbidden: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether the case passes by all three rules."""
        return None not in self.delays_s and self.extra == 0 and not self.forbidden


@dataclass(frozen=True, slots=True)
class Summary:
    """All cases together; ``recall`` is None where nothing was to be found."""

    cases: int
    passed: int
    expected_alerts: int
    met_alerts: int
    recall: float | None
    extra_incidents: int
    extra_incidents_per_hour: float
    hours: float


def judge(case: str, expected: Expectation, alerts: Iterable[AlertEvent], seconds: float) -> Verdict:
    """Judge the alerts of one case, which was ``seconds`` long."""
    incidents = incidents_of(alerts)
    seen = {cause for incident in incidents for cause in incident.causes}
    return Verdict(
        case=case,
        seconds=seconds,
        delays_s=tuple(_delay_s(alert, incidents) for alert in expected.alerts),
        incidents=incidents,
        extra=max(0, len(incidents) - expected.max_incidents),
        forbidden=tuple(sorted(seen & set(expected.forbidden_causes))),
    )


def incidents_of(alerts: Iterable[AlertEvent]) -> tuple[Incident, ...]:
    """Put the messages of each incident together, in the order of their opening."""
    told: dict[str, list[AlertEvent]] = {}
    for alert in alerts:
        told.setdefault(alert.incident, []).append(alert)
    return tuple(
        Incident(
            detected_s=messages[0].detected_at_ns / SECOND_NS,
            messages=tuple((m.published_ns / SECOND_NS, m.cause, tuple(m.ranks.tolist())) for m in messages),
            summary=messages[-1].summary,
        )
        for messages in told.values()
    )


def _delay_s(expected: ExpectedAlert, incidents: Sequence[Incident]) -> float | None:
    """Return the seconds until an incident met the expectation, the earliest of them; None if none did."""
    delays = [_incident_delay_s(expected, incident) for incident in incidents]
    return min((delay for delay in delays if delay is not None), default=None)


def _incident_delay_s(expected: ExpectedAlert, incident: Incident) -> float | None:
    deadline_s = expected.onset_s + expected.max_delay_s
    if not expected.onset_s <= incident.detected_s <= deadline_s:
        return None
    # the verdict that stands at the deadline counts, dated from the message since which it has stood
    since_s = None
    for told_s, cause, ranks in incident.messages:
        if told_s > deadline_s:
            break
        if not _fits(expected, cause, ranks):
            since_s = None
        elif since_s is None:
            since_s = told_s
    return None if since_s is None else since_s - expected.onset_s


def _fits(expected: ExpectedAlert, cause: str, ranks: Sequence[int]) -> bool:
    named = expected.ranks is None or (bool(ranks) and set(ranks) <= set(expected.ranks))
    return cause in expected.causes and named


def summarise(verdicts: Sequence[Verdict]) -> Summary:
    """Return the figures over all cases."""
    delays = [delay for verdict in verdicts for delay in verdict.delays_s]
    met = sum(delay is not None for delay in delays)
    extra = sum(verdict.extra for verdict in verdicts)
    hours = sum(verdict.seconds for verdict in verdicts) / 3600
    return Summary(
        cases=len(verdicts),
        passed=sum(verdict.passed for verdict in verdicts),
        expected_alerts=len(delays),
        met_alerts=met,
        recall=met / len(delays) if delays else None,
        extra_incidents=extra,
        extra_incidents_per_hour=extra / hours if hours else 0.0,
        hours=hours,
    )
