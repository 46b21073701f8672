"""An alert in the words of those who page people. Pure.

Sources: Alertmanager's API v2 (POST /api/v2/alerts), PagerDuty's Events API v2 (POST /v2/enqueue), Slack's incoming
webhooks (a JSON object with ``text``).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eacgm.errors import ConfigError
from eacgm.events import AlertEvent
from eacgm.instants import rfc3339
from eacgm.sinks.address import Address
from eacgm.sinks.incidents import Step
from eacgm.streams.alert import to_json

#: Alertmanager takes an alert as resolved once this time has passed without a repetition
FIRING_NS = 300_000_000_000
#: PagerDuty cuts a summary off here
MOST_SUMMARY_CHARACTERS = 1024


@dataclass(frozen=True, slots=True)
class Post:
    """One HTTP request: POST ``body`` (JSON) to ``url`` with ``headers`` more."""

    url: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Form:
    """How one kind of sink is told; ``secret`` is a webhook's signing key or PagerDuty's routing key."""

    def __init__(self, address: Address, secret: str | None = None) -> None:
        """Raise ``ConfigError`` where a secret is needed or makes no sense."""
        if address.kind == "pagerduty" and secret is None:
            raise ConfigError("pagerduty needs its integration's routing key; expected --secret-file with it")
        if address.kind in ("alertmanager", "slack") and secret is not None:
            raise ConfigError(f"{address.kind} takes no secret; leave --secret-file out")
        self.address = address
        self._secret = secret

    def posts(self, step: Step, now_ns: int) -> list[Post]:
        """Return what to send for a step of an incident, nothing where it is no news to this sink."""
        alert, url = step.alert, self.address.url.rstrip("/")
        if self.address.kind == "alertmanager":
            renamed = step.before is not None and _labels(step.before) != _labels(alert)
            gone = [_alertmanager(step.before, now_ns, over=True)] if step.before is not None and renamed else []
            return [_post(f"{url}/api/v2/alerts", [*gone, _alertmanager(alert, now_ns)])]
        if self.address.kind == "pagerduty":
            return [_post(f"{url}/v2/enqueue", _pagerduty(alert, self._secret or ""))]
        if self.address.kind == "slack":
            return [_post(self.address.url, {"text": _slack(alert)})] if step.news else []
        return [self._webhook(alert, now_ns)]

    def reminders(self, open_alerts: Sequence[AlertEvent], now_ns: int) -> list[Post]:
        """Return what keeps open incidents open, for a sink that else takes them as resolved."""
        if self.address.kind != "alertmanager" or not open_alerts:
            return []
        url = self.address.url.rstrip("/")
        return [_post(f"{url}/api/v2/alerts", [_alertmanager(alert, now_ns) for alert in open_alerts])]

    def _webhook(self, alert: AlertEvent, now_ns: int) -> Post:
        post = _post(self.address.url, to_json(alert), {"Idempotency-Key": alert.id})
        if self._secret is None:
            return post
        return Post(
            post.url, post.body, {**post.headers, **signature(post.body, self._secret, now_ns // 1_000_000_000)}
        )


def signature(body: bytes, secret: str, time_seconds: int) -> dict[str, str]:
    """Return the headers by which a receiver knows a webhook's body: HMAC-SHA256 over ``TIME.BODY``.

    >>> signature(b"{}", "key", 7)["X-Eacgm-Signature"][:14]
    'sha256=77bc83b'
    """
    digest = hmac.new(secret.encode(), f"{time_seconds}.".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Eacgm-Timestamp": str(time_seconds), "X-Eacgm-Signature": f"sha256={digest}"}


def _post(url: str, value: Any, headers: Mapping[str, str] | None = None) -> Post:
    # a float that is no number is no JSON either
    return Post(url, json.dumps(value, allow_nan=False).encode(), headers or {})


def _labels(alert: AlertEvent) -> dict[str, str]:
    """Return what identifies an alert to Alertmanager; empty labels are as good as none."""
    labels = {
        "alertname": "eACGM",
        "job": alert.job,
        "incident": alert.incident,
        "cause": alert.cause,
        "severity": alert.severity,
        "layer": alert.layer,
        "node": alert.node,
        "gpu": alert.gpu or "",
        "ranks": ",".join(map(str, alert.ranks.tolist())),
    }
    return {name: value for name, value in labels.items() if value}


def _alertmanager(alert: AlertEvent, now_ns: int, *, over: bool = False) -> dict[str, Any]:
    if alert.resolved_at_ns is not None:
        ends_ns = max(alert.resolved_at_ns, alert.started_at_ns)
    else:
        ends_ns = now_ns if over else now_ns + FIRING_NS
    return {
        "labels": _labels(alert),
        "annotations": {"summary": alert.summary, "coverage": f"{alert.coverage:.2f}"},
        "startsAt": rfc3339(min(alert.started_at_ns, ends_ns)),
        "endsAt": rfc3339(ends_ns),
    }


def _pagerduty(alert: AlertEvent, routing_key: str) -> dict[str, Any]:
    event = {"routing_key": routing_key, "dedup_key": alert.incident}
    if alert.state == "resolved":
        return {**event, "event_action": "resolve"}
    return {
        **event,
        "event_action": "trigger",
        "payload": {
            "summary": alert.summary[:MOST_SUMMARY_CHARACTERS],
            "source": alert.node or alert.job,
            "severity": alert.severity,
            "timestamp": rfc3339(alert.detected_at_ns),
            "component": alert.layer,
            "group": alert.job,
            "class": alert.cause,
            "custom_details": to_json(alert),
        },
    }


def _slack(alert: AlertEvent) -> str:
    text = f"[{alert.state}, {alert.severity}] {alert.job}: {alert.cause}. {alert.summary}"
    # Slack's three signs of markup
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
