"""Findings to incidents: opened, updated, resolved; deduplicated, with deterministic ids; and their JSON form."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eacgm.config import AlertConfig
from eacgm.events import AlertEvent, Evidence, FrameEvent
from eacgm.instants import rfc3339
from eacgm.streams.detection import Accusation
from eacgm.streams.diagnose import CONSEQUENCES
from eacgm.streams.finding import Finding

SEVERITIES = ("info", "warning", "critical")


@dataclass(slots=True)
class Incident:
    """An open incident: what it is, since when, and when it was last confirmed (frames)."""

    name: str
    finding: Finding
    detected_at_ns: int
    quiet_windows: int = 0
    windows_since_update: int = 0
    updates: int = 0
    score: float = 0.0
    peak_share: float = 0.0


@dataclass(slots=True)
class Incidents:
    """The incidents of one job and incarnation."""

    config: AlertConfig
    open: list[Incident] = field(default_factory=list)

    def accused(self) -> dict[str, Accusation]:
        """Return what the open incidents blame, by cause."""
        blamed: dict[str, Accusation] = {}
        for incident in self.open:
            ranks, peak_share = list(incident.finding.ranks), incident.peak_share
            known = blamed.get(incident.finding.cause)
            if known is not None:
                # a cause may strike several ranks, each with an incident of its own
                ranks = known.ranks + [rank for rank in ranks if rank not in known.ranks]
                peak_share = max(known.peak_share, peak_share)
            blamed[incident.finding.cause] = Accusation(ranks, peak_share)
        return blamed

    def update(self, frame: FrameEvent, findings: list[Finding], *, active: bool) -> list[AlertEvent]:
        """Take a frame's findings; return the alerts that follow, in order.

        ``active`` says whether the frame had steps: without, incidents about steps neither go on nor end.
        """
        alerts: list[AlertEvent] = []
        confirmed: set[str] = set()
        for finding in findings:
            incident = self._home(finding)
            if incident is None:
                incident = self._opened(frame, finding)
                self.open.append(incident)
                alerts.append(self._alert(frame, incident, "open"))
            elif self._absorb(incident, finding):
                alerts.append(self._alert(frame, incident, "update"))
            confirmed.add(incident.name)
        for incident in list(self.open):
            incident.windows_since_update += 1
            if incident.name in confirmed:
                incident.quiet_windows = 0
            elif active or not incident.finding.needs_steps:
                incident.quiet_windows += 1
            if incident.quiet_windows >= max(self.config.resolve_windows, incident.finding.hold_windows):
                self.open.remove(incident)
                alerts.append(self._alert(frame, incident, "resolved"))
            elif incident.windows_since_update >= self.config.update_windows and incident.quiet_windows == 0:
                alerts.append(self._alert(frame, incident, "update"))
        return alerts

    def retire(self, frame: FrameEvent) -> list[AlertEvent]:
        """Resolve what is open: ``frame`` is the last of an incarnation that another has replaced."""
        alerts = [self._alert(frame, incident, "resolved") for incident in self.open]
        self.open.clear()
        return alerts

    def _home(self, finding: Finding) -> Incident | None:
        """Return the open incident that a finding belongs to: the same fault, or what follows from it."""
        for incident in self.open:
            ours = incident.finding
            if ours.cause == finding.cause and (
                not ours.ranks or not finding.ranks or set(ours.ranks) & set(finding.ranks)
            ):
                return incident
        for incident in self.open:
            ours = incident.finding
            if finding.cause in CONSEQUENCES.get(ours.cause, ()) or ours.cause in CONSEQUENCES.get(finding.cause, ()):
                return incident
        for incident in self.open:
            # a rank that holds up the job does so for one reason at a time; the first name stays
            if (
                incident.finding.needs_steps
                and finding.needs_steps
                and set(incident.finding.ranks) & set(finding.ranks)
            ):
                return incident
        return None

    def _absorb(self, incident: Incident, finding: Finding) -> bool:
        """Let a finding confirm or sharpen an incident; tell whether that is worth a message."""
        ours = incident.finding
        incident.score = max(incident.score, finding.score)
        incident.peak_share = max(incident.peak_share, finding.share)
        if finding.cause != ours.cause:
            if ours.cause in CONSEQUENCES.get(finding.cause, ()) and finding.cause not in CONSEQUENCES.get(
                ours.cause, ()
            ):
                # the root cause came later than what follows from it: an XID after the hang
                incident.finding = finding
                return True
            return False
        if ours.ranks and not finding.ranks:
            finding = replace(finding, ranks=ours.ranks, summary=ours.summary)
        elif finding.cause == "crash" and not set(finding.ranks) & set(ours.ranks):
            # those who die of a death are not its culprits
            return False
        louder = SEVERITIES.index(finding.severity) > SEVERITIES.index(ours.severity)
        named = finding.ranks != ours.ranks
        incident.finding = finding
        return louder or named

    def _opened(self, frame: FrameEvent, finding: Finding) -> Incident:
        seed = f"{frame.job}\0{frame.incarnation}\0{finding.cause}\0{finding.started_ns}\0{finding.ranks}"
        name = hashlib.blake2b(seed.encode(), digest_size=8).hexdigest()
        return Incident(name, finding, frame.end_ns, score=finding.score, peak_share=finding.share)

    def _alert(self, frame: FrameEvent, incident: Incident, state: str) -> AlertEvent:
        finding = incident.finding
        incident.windows_since_update = 0
        number = incident.updates
        incident.updates += 1
        digest = hashlib.blake2b(f"{incident.name}\0{number}\0{state}".encode(), digest_size=8).hexdigest()
        nodes = {
            node for rank, node in zip(frame.ranks.tolist(), frame.nodes, strict=True) if rank in finding.ranks and node
        }
        return AlertEvent(
            job=frame.job,
            incarnation=frame.incarnation,
            node=nodes.pop() if len(nodes) == 1 else "",
            rank=None,
            role="job",
            start_ns=frame.start_ns,
            end_ns=frame.end_ns,
            published_ns=frame.end_ns,
            id=digest,
            incident=incident.name,
            state=state,
            severity=finding.severity,
            cause=finding.cause,
            layer=finding.layer,
            ranks=np.array(finding.ranks, dtype=np.int64),
            gpu=finding.gpu,
            started_at_ns=min(finding.started_ns, incident.detected_at_ns),
            detected_at_ns=incident.detected_at_ns,
            resolved_at_ns=frame.end_ns if state == "resolved" else None,
            score=round(incident.score, 6),
            p_value=finding.p_value,
            evidence=list(finding.evidence),
            coverage=round(frame.coverage, 6),
            summary=finding.summary,
        )

    def state(self) -> list[dict[str, Any]]:
        """Return everything that ``load`` needs."""
        return [
            {
                "name": incident.name,
                "finding": incident.finding.state(),
                "detected_at_ns": incident.detected_at_ns,
                "quiet_windows": incident.quiet_windows,
                "windows_since_update": incident.windows_since_update,
                "updates": incident.updates,
                "score": incident.score,
                "peak_share": incident.peak_share,
            }
            for incident in self.open
        ]

    def load(self, state: list[dict[str, Any]]) -> None:
        """Take over a saved state."""
        self.open = [Incident(**{**item, "finding": Finding.from_state(item["finding"])}) for item in state]


def to_json(alert: AlertEvent) -> dict[str, Any]:
    """Return an alert as the contract's JSON object: times in RFC 3339, ranks as numbers, NaN as null."""

    def number(value: float | None) -> float | None:
        if value is None or not np.isfinite(value):
            return None
        # nine decimals would turn the smallest p-values into 0, which says "a fact"
        return round(float(value), 9) if abs(value) >= 1e-6 else float(f"{value:.4g}")

    def evidence(item: Evidence) -> dict[str, Any]:
        return {
            "feature": item.feature,
            "rank": item.rank,
            "value": number(item.value),
            "expected": number(item.expected),
            "unit": item.unit,
            "share": number(item.share),
        }

    return {
        "id": alert.id,
        "incident": alert.incident,
        "job": alert.job,
        "incarnation": alert.incarnation,
        "state": alert.state,
        "severity": alert.severity,
        "cause": alert.cause,
        "layer": alert.layer,
        "ranks": alert.ranks.tolist(),
        "node": alert.node or None,
        "gpu": alert.gpu,
        "started_at": rfc3339(alert.started_at_ns),
        "detected_at": rfc3339(alert.detected_at_ns),
        "resolved_at": None if alert.resolved_at_ns is None else rfc3339(alert.resolved_at_ns),
        "score": number(alert.score),
        "p_value": number(alert.p_value),
        "evidence": [evidence(item) for item in alert.evidence],
        "coverage": number(alert.coverage),
        "summary": alert.summary,
    }
