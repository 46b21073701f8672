"""Incidents compared: the same differ in nothing, and every incident is told of at most once."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eacgm.events import AlertEvent
from eacgm.streams.comparison import Incident, compare, incidents

MS = 1_000_000

some_incidents = st.lists(
    st.builds(
        Incident,
        incident=st.sampled_from("abcdef"),
        job=st.sampled_from(["one", "two"]),
        cause=st.sampled_from(["hang", "network"]),
        severity=st.just("warning"),
        ranks=st.sampled_from([(), (1,), (1, 2), (3,)]),
        started_ns=st.integers(0, 100).map(lambda seconds: seconds * 10**9),
        detected_ns=st.just(0),
        resolved_ns=st.none() | st.integers(100, 200).map(lambda seconds: seconds * 10**9),
    ),
    max_size=8,
    unique_by=lambda one: (one.job, one.incident),
)


@given(some_incidents)
def test_the_same_differ_in_nothing(some):
    assert compare(some, list(reversed(some))) == []


@given(some_incidents)
def test_against_nothing_all_are_new_or_gone(some):
    assert [one.kind for one in compare([], some)] == ["new"] * len(some)
    assert [one.kind for one in compare(some, [])] == ["gone"] * len(some)


@given(some_incidents, some_incidents)
def test_every_incident_is_told_of_once_and_the_other_way_round_is_the_mirror(old, new):
    there, back = compare(old, new), compare(new, old)
    count = {kind: sum(one.kind == kind for one in there) for kind in ("new", "gone", "changed")}
    mirror = {kind: sum(one.kind == kind for one in back) for kind in ("gone", "new", "changed")}
    assert (count["new"], count["gone"], count["changed"]) == (mirror["gone"], mirror["new"], mirror["changed"])
    assert count["new"] + count["changed"] <= len(new)
    assert len(new) - count["new"] == len(old) - count["gone"]


def incident(**changed):
    usual = Incident("x", "job", "hang", "critical", (2,), 10 * 10**9, 12 * 10**9, 30 * 10**9)
    return replace(usual, **changed)


def test_another_name_for_the_same_is_a_change_and_not_a_new_one():
    (one,) = compare([incident()], [incident(incident="y", started_ns=9 * 10**9, cause="network")])
    assert one.kind == "changed"
    assert one.changes == {"cause": ("hang", "network"), "started_ns": (10 * 10**9, 9 * 10**9)}


def test_other_ranks_jobs_and_times_are_others():
    for other in (incident(ranks=(5,)), incident(job="another"), incident(started_ns=90 * 10**9, resolved_ns=None)):
        assert [one.kind for one in compare([incident()], [replace(other, incident="y")])] in (
            ["gone", "new"],
            ["new", "gone"],
        )


def alert(state, at, **fields):
    usual = {"job": "j", "incident": "i", "state": state, "cause": "hang", "ranks": np.array([3, 1])}
    times = {"started_at_ns": 5 * MS + 1, "detected_at_ns": 7 * MS, "start_ns": 0, "end_ns": at}
    return AlertEvent(**(usual | times | fields))


def test_an_incidents_alerts_are_told_together_whatever_is_repeated():
    opened, resolved = alert("open", 1), alert("resolved", 2, resolved_at_ns=20 * MS, detected_at_ns=9 * MS)
    (one,) = incidents([opened, resolved, opened])
    assert one == Incident("i", "j", "hang", "warning", (1, 3), 5 * MS, 7 * MS, 20 * MS)
    (still,) = incidents([opened])
    assert still.resolved_ns is None
