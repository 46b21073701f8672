import json
from dataclasses import replace

import numpy as np

from eacgm.config import AlertConfig
from eacgm.events import Evidence, FrameEvent
from eacgm.streams.alert import Incidents, to_json
from eacgm.streams.finding import Finding

#: the contract's fields, in its order
CONTRACT = [
    "id", "incident", "job", "incarnation", "state", "severity", "cause", "layer", "ranks", "node", "gpu",
    "started_at", "detected_at", "resolved_at", "score", "p_value", "evidence", "coverage", "summary",
]  # fmt: skip


def frame(second):
    return FrameEvent(
        job="j", start_ns=second * 10**9, end_ns=(second + 1) * 10**9, ranks=np.arange(4), present=[True] * 4,
        nodes=["a", "a", "b", "b"], groups=[""] * 4, features=[], values=np.empty((4, 0)),
    )  # fmt: skip


def finding(cause="slow_compute", ranks=(2,), severity="warning", **more):
    evidence = (Evidence("compute_seconds", 2, 0.5, 0.4, "seconds", 0.9),)
    return Finding(
        cause=cause, layer="pytorch", ranks=ranks, severity=severity, summary="It is slow.", started_ns=10**9,
        evidence=evidence, **more,
    )  # fmt: skip


def follow(script, config=None):
    incidents, alerts = Incidents(config or AlertConfig()), []
    for second, findings in enumerate(script):
        alerts += incidents.update(frame(second), findings, active=True)
    return alerts


def states(alerts):
    return [(alert.state, alert.cause) for alert in alerts]


def test_one_fault_opens_once_and_resolves_after_quiet_windows():
    alerts = follow([[finding()]] * 5 + [[]] * 8)
    assert states(alerts) == [("open", "slow_compute"), ("resolved", "slow_compute")]
    assert alerts[1].resolved_at_ns == 13 * 10**9
    assert len({alert.incident for alert in alerts}) == 1
    assert len({alert.id for alert in alerts}) == 2


def test_a_flapping_finding_is_one_incident():
    assert states(follow([[finding()], [], []] * 10)) == [("open", "slow_compute")]


def test_updates_come_now_and_then_and_when_it_gets_worse():
    config = AlertConfig(update_windows=10)
    assert len(follow([[finding()]] * 21, config)) == 3
    worse = follow([[finding()], [finding(severity="critical")]])
    assert [(alert.state, alert.severity) for alert in worse] == [("open", "warning"), ("update", "critical")]


def test_consequences_belong_to_the_incident_of_their_cause():
    hang, xid = finding("hang", (3,)), finding("gpu_hardware", (3,), "critical")
    assert states(follow([[xid], [hang], [hang]])) == [("open", "gpu_hardware")]
    late = follow([[hang], [xid], [hang]])
    assert states(late) == [("open", "hang"), ("update", "gpu_hardware")]
    assert late[0].incident == late[1].incident


def test_unrelated_faults_are_two_incidents():
    assert states(follow([[finding(), finding("gpu_memory", (0,))]])) == [
        ("open", "slow_compute"),
        ("open", "gpu_memory"),
    ]


def test_windows_without_steps_neither_confirm_nor_end_a_finding_about_steps():
    incidents = Incidents(AlertConfig())
    incidents.update(frame(0), [finding(needs_steps=True)], active=True)
    for second in range(1, 60):
        assert not [a for a in incidents.update(frame(second), [], active=False) if a.state == "resolved"]


def test_same_input_same_bytes():
    script = [[finding()], [finding(ranks=(2, 3))], []]
    assert [json.dumps(to_json(a)) for a in follow(script)] == [json.dumps(to_json(a)) for a in follow(script)]


def test_json_has_the_contracts_fields():
    told = to_json(follow([[finding()]])[0])
    assert list(told) == CONTRACT
    assert told["ranks"] == [2]
    assert told["node"] == "b"
    assert told["started_at"] == "1970-01-01T00:00:01.000Z"
    assert told["resolved_at"] is None
    assert list(told["evidence"][0]) == ["feature", "rank", "value", "expected", "unit", "share"]
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_snapshot_is_invisible():
    script = [[finding()], [finding()], [], [finding("gpu_memory", (0,))], [], []]
    whole = follow(script)
    first, alerts = Incidents(AlertConfig()), []
    for second, findings in enumerate(script):
        fresh = Incidents(AlertConfig())
        fresh.load(first.state())
        alerts += fresh.update(frame(second), findings, active=True)
        first = fresh
    assert alerts == whole


def test_a_named_rank_is_kept_when_a_later_finding_names_none():
    alerts = follow([[finding("network", (2,))], [finding("network", ())]] + [[]] * 8)
    assert [alert.ranks.tolist() for alert in alerts] == [[2], [2]]


def test_finding_round_trips():
    one = finding(hold_windows=3)
    assert Finding.from_state(one.state()) == one
    assert replace(one, cause="hang") != one


def test_ranks_with_an_incident_each_are_all_accused():
    incidents = Incidents(AlertConfig())
    incidents.update(frame(0), [finding(ranks=(1,), share=0.4)], active=True)
    incidents.update(frame(1), [finding(ranks=(3,), share=0.1)], active=True)
    assert len(incidents.open) == 2
    accusation = incidents.accused()["slow_compute"]
    assert accusation.ranks == [1, 3]
    assert accusation.peak_share == 0.4


def test_a_replaced_incarnation_leaves_nothing_open():
    incidents = Incidents(AlertConfig())
    opened = incidents.update(frame(0), [finding(), finding("gpu_memory", (0,))], active=True)
    resolved = incidents.retire(frame(9))
    assert [(alert.state, alert.incident) for alert in resolved] == [("resolved", alert.incident) for alert in opened]
    assert {alert.resolved_at_ns for alert in resolved} == {10 * 10**9}
    assert incidents.retire(frame(10)) == []


def test_the_smallest_chance_is_not_told_as_a_fact():
    told = to_json(follow([[finding(p_value=3.2e-14)]])[0])
    assert told["p_value"] == 3.2e-14
    assert to_json(follow([[finding()]])[0])["p_value"] == 0.0
