"""Laws of the pipeline: one window an event, no dependence on order within the lateness, invisible snapshots."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eacgm.config import WindowConfig
from eacgm.errors import InputError
from eacgm.events import AlertEvent, CallsEvent, CollectivesEvent, HostEvent, ProcessEvent
from eacgm.producers.simulation import simulate
from eacgm.producers.simulation_plan import ClusterPlan, parse_faults
from eacgm.streams.pipeline import Pipeline
from eacgm.streams.window import Windows

SECOND = 1_000_000_000
LATENESS = 1
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def host(start_ns, end_ns, sequence, rank=0):
    return HostEvent(
        job="j",
        rank=rank,
        node=f"n{rank % 2}",
        start_ns=start_ns,
        end_ns=end_ns,
        published_ns=end_ns,
        sequence=sequence,
        cpu_seconds=float(sequence % 7) / 3,
        step_thread_blocked_seconds=0.1,
    )


intervals = st.lists(
    st.tuples(st.integers(0, 40 * SECOND), st.integers(0, 5 * SECOND), st.integers(0, 3)), min_size=1, max_size=40
)


@few
@given(intervals, st.integers(0, 3000))
def test_each_event_is_in_exactly_one_window_or_counted(spans, lateness_ms):
    windows = Windows(WindowConfig(size_ms=1000, lateness_ms=lateness_ms))
    events = [host(start, start + length, n + 1, rank) for n, (start, length, rank) in enumerate(spans)]
    closed = [w for event in events for w in windows.add(event)] + list(windows.close_all())
    placed = [(w, event) for w in closed for event in w.events]
    assert len(placed) + windows.late + windows.refused == len(events)
    assert len({id(event) for _, event in placed}) == len(placed)
    assert all(w.start_ns <= event.middle_ns < w.end_ns for w, event in placed)
    assert all(a.end_ns == b.start_ns for a, b in pairwise(closed))
    # what came late after the last closing stands in no frame any more
    assert sum(w.late for w in closed) <= windows.late


def second_of_events(second, rank, skew):
    """Everything that one rank's producer tells of one second, which differs from second to second."""
    start, end = second * SECOND, (second + 1) * SECOND
    common = {"job": "j", "rank": rank, "node": f"n{rank % 2}", "pid": 100 + rank, "published_ns": end}
    n = 1000 * second + 10 * rank
    ends = start + (np.arange(4) + 1) * 200_000_000 + rank * 1_000_000
    yield host(start, end, n + 1, rank)
    yield CallsEvent(
        **common,
        start_ns=start,
        end_ns=end,
        sequence=n + 2,
        layer=["pytorch"],
        function=["backward"],
        count=np.array([2]),
        errors=np.zeros(1, dtype=np.int64),
        payload_bytes=np.zeros(1, dtype=np.int64),
        total_ns=np.array([300_000_000 + 7 * second + rank * skew]),
        max_ns=np.array([150_000_000]),
        open_count=np.zeros(1, dtype=np.int64),
        open_age_ns=np.zeros(1, dtype=np.int64),
    )
    yield CollectivesEvent(
        **common,
        start_ns=start,
        end_ns=end,
        sequence=n + 3,
        clock_error_ns=100_000,
        communicator=["c"] * 4,
        operation=["allreduce"] * 4,
        call_sequence=np.arange(4) + 4 * second - rank,
        payload_bytes=np.full(4, 1 << 20),
        call_start_ns=ends - 20_000_000 - rank * skew,
        call_end_ns=ends,
        return_code=np.zeros(4, dtype=np.int64),
    )
    if second % 5 == 0:
        yield ProcessEvent(**common, start_ns=end, end_ns=end, sequence=n + 4, world_size=4, gpu_uuids=[f"G{rank}"])


def scenario(n_seconds, skew=500_000):
    return [e for s in range(n_seconds) for rank in range(3) for e in second_of_events(s, rank, skew)]


def run(pipeline, events):
    return [out for event in events for out in pipeline.push(event)]


@few
@given(st.randoms(use_true_random=False), st.integers(3, 8))
def test_the_order_within_the_lateness_does_not_matter(random, n_seconds):
    events = scenario(n_seconds)
    # an event is delayed by less than the lateness: its key is its end plus the delay
    delayed = sorted(events, key=lambda e: e.end_ns + random.uniform(0, 0.99) * LATENESS * SECOND)
    one, other = Pipeline(), Pipeline()
    expected = run(one, events) + one.finish()
    assert run(other, delayed) + other.finish() == expected
    assert other.statistics().late == 0


@few
@given(st.data(), st.integers(3, 20))
def test_a_snapshot_at_any_point_is_invisible(data, n_seconds):
    events = scenario(n_seconds)
    at = data.draw(st.integers(0, len(events)))
    one, other = Pipeline(), Pipeline()
    before = run(one, events[:at])
    other.restore(one.snapshot())
    assert other.snapshot() == one.snapshot()
    after = run(one, events[at:]) + one.finish()
    assert run(other, events[at:]) + other.finish() == after
    assert before == run(Pipeline(), events[:at])


@few
@given(st.lists(st.integers(0, 47), max_size=20), st.integers(2, 6))
def test_a_message_delivered_twice_changes_nothing(repeated, n_seconds):
    events = scenario(n_seconds)
    again = list(events)
    for place in sorted((place % len(events) for place in repeated), reverse=True):
        again.insert(place, events[place])
    one, other = Pipeline(), Pipeline()
    assert run(one, events) + one.finish() == run(other, again) + other.finish()


@few
@given(st.binary(max_size=200))
def test_foreign_bytes_never_restore(payload):
    with pytest.raises(InputError):
        Pipeline().restore(payload)


def test_a_snapshot_in_an_incident_is_invisible():
    plan = ClusterPlan(n_ranks=4, seconds=110, seed=3)
    plan = replace(plan, faults=parse_faults(["slow_compute@2:60-90"], plan))
    events = list(simulate(plan))
    one = Pipeline()
    copies, out = [], []
    for n, event in enumerate(events):
        if n % (len(events) // 6) == 1:
            copy = Pipeline()
            copy.restore(one.snapshot())
            copies.append((n, len(out), copy))
        out += one.push(event)
    out += one.finish()
    assert any(isinstance(e, AlertEvent) for e in out)
    for n, told, copy in copies:
        assert run(copy, events[n:]) + copy.finish() == out[told:]
