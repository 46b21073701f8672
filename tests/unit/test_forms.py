"""Alerts in the words of each sink."""

import hashlib
import hmac
import json
from dataclasses import replace

import numpy as np
import pytest

from eacgm.errors import ConfigError
from eacgm.events import AlertEvent
from eacgm.sinks.address import parse
from eacgm.sinks.forms import FIRING_NS, Form
from eacgm.sinks.incidents import LONGEST_SILENCE_NS, OpenIncidents, Step
from eacgm.streams.alert import to_json

SECOND = 10**9
NOW = 1_800_000_000 * SECOND
OPENED = AlertEvent(
    job="llama",
    node="n1",
    start_ns=NOW - 2 * SECOND,
    end_ns=NOW - SECOND,
    published_ns=NOW,
    id="a-1",
    incident="i-1",
    severity="critical",
    cause="slow_compute",
    layer="host",
    ranks=np.array([2, 5]),
    started_at_ns=NOW - 9 * SECOND,
    detected_at_ns=NOW - SECOND,
    summary="Ranks 2 and 5 are <slow> & late.",
)
RESOLVED = replace(OPENED, id="a-2", state="resolved", resolved_at_ns=NOW + 60 * SECOND)


def bodies(form, step):
    return [json.loads(post.body) for post in form.posts(step, NOW)]


def test_alertmanager_is_told_labels_that_stay_and_when_it_ends():
    form = Form(parse("alertmanager=http://am:9093/"))
    (post,) = form.posts(Step(OPENED, None), NOW)
    assert post.url == "http://am:9093/api/v2/alerts"
    ((alert,),) = bodies(form, Step(OPENED, None))
    assert alert["labels"] == {
        "alertname": "eACGM", "job": "llama", "incident": "i-1", "cause": "slow_compute", "severity": "critical",
        "layer": "host", "node": "n1", "ranks": "2,5",
    }  # fmt: skip
    assert alert["annotations"]["summary"] == OPENED.summary
    assert alert["startsAt"] == "2027-01-15T07:59:51.000Z"
    assert alert["endsAt"] == "2027-01-15T08:05:00.000Z"
    ((over,),) = bodies(form, Step(RESOLVED, OPENED))
    assert over["labels"] == alert["labels"]
    assert over["endsAt"] == "2027-01-15T08:01:00.000Z"


def test_alertmanager_is_told_that_an_alert_of_other_labels_is_over():
    form = Form(parse("alertmanager=http://am:9093"))
    worse = replace(OPENED, id="a-3", state="update", ranks=np.array([2]))
    ((gone, now),) = bodies(form, Step(worse, OPENED))
    assert (gone["labels"]["ranks"], gone["endsAt"]) == ("2,5", "2027-01-15T08:00:00.000Z")
    assert (now["labels"]["ranks"], now["endsAt"]) == ("2", "2027-01-15T08:05:00.000Z")


def test_open_incidents_are_told_again_to_alertmanager_alone():
    (post,) = Form(parse("alertmanager=http://am:9093")).reminders([OPENED], NOW)
    assert json.loads(post.body)[0]["labels"]["incident"] == "i-1"
    assert Form(parse("alertmanager=http://am:9093")).reminders([], NOW) == []
    assert Form(parse("webhook=http://w/")).reminders([OPENED], NOW) == []


def test_a_webhook_is_told_the_contracts_json_signed():
    (post,) = Form(parse("webhook=https://w/hook"), "key").posts(Step(OPENED, None), NOW)
    assert json.loads(post.body) == to_json(OPENED)
    assert post.headers["Idempotency-Key"] == "a-1"
    signed = f"{post.headers['X-Eacgm-Timestamp']}.".encode() + post.body
    assert post.headers["X-Eacgm-Signature"] == "sha256=" + hmac.new(b"key", signed, hashlib.sha256).hexdigest()
    (plain,) = Form(parse("webhook=https://w/hook")).posts(Step(OPENED, None), NOW)
    assert "X-Eacgm-Signature" not in plain.headers


def test_pagerduty_is_told_by_the_incident():
    form = Form(parse("pagerduty"), "routing")
    (post,) = form.posts(Step(OPENED, None), NOW)
    assert post.url == "https://events.pagerduty.com/v2/enqueue"
    trigger = json.loads(post.body)
    assert (trigger["routing_key"], trigger["dedup_key"], trigger["event_action"]) == ("routing", "i-1", "trigger")
    assert trigger["payload"]["severity"] == "critical"
    (resolve,) = bodies(form, Step(RESOLVED, OPENED))
    assert resolve == {"routing_key": "routing", "dedup_key": "i-1", "event_action": "resolve"}


def test_slack_is_told_only_what_is_news():
    form = Form(parse("slack=https://hooks/x"))
    (told,) = bodies(form, Step(OPENED, None))
    assert told["text"].startswith("[open, critical] llama: slow_compute. Ranks 2 and 5 are &lt;slow&gt; &amp;")
    assert bodies(form, Step(replace(OPENED, id="a-4", state="update", score=7.0), OPENED)) == []
    assert len(bodies(form, Step(replace(OPENED, id="a-5", state="update", cause="pcie"), OPENED))) == 1
    assert len(bodies(form, Step(RESOLVED, OPENED))) == 1


@pytest.mark.parametrize(
    ("kind", "secret"), [("pagerduty", None), ("slack=http://x", "s"), ("alertmanager=http://x", "s")]
)
def test_secrets_are_where_they_belong(kind, secret):
    with pytest.raises(ConfigError):
        Form(parse(kind), secret)


def test_incidents_long_silent_are_not_kept_open():
    incidents = OpenIncidents()
    assert incidents.step(OPENED).before is None
    assert incidents.step(replace(OPENED, id="a-6", state="update")).before is OPENED
    assert len(incidents.alive(NOW + FIRING_NS)) == 1
    assert incidents.alive(NOW + LONGEST_SILENCE_NS + 1) == []
    incidents.step(OPENED)
    incidents.step(RESOLVED)
    assert incidents.alive(NOW) == []
