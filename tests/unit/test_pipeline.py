import numpy as np
import pytest

from eacgm.config import load
from eacgm.errors import InputError
from eacgm.events import AlertEvent, CallsEvent, FrameEvent, GpuEvent, HostEvent, ProcessEvent, SamplesEvent
from eacgm.producers.simulation import simulate
from eacgm.producers.simulation_plan import START_SECONDS, ClusterPlan
from eacgm.streams.pipeline import RETIREMENT_NS, Pipeline
from eacgm.streams.sample_readings import MOST_OTHERS

SECOND = 1_000_000_000
START = 1_700_000_000


def told(second, rank=0, job="j", **fields):
    at = (START + second) * SECOND
    return HostEvent(
        job=job,
        rank=rank,
        node="a",
        start_ns=at,
        end_ns=at + SECOND,
        published_ns=at + SECOND,
        cpu_seconds=0.5,
        **fields,
    )


def end_of(rank, second, exit_code):
    at = (START + second) * SECOND
    return ProcessEvent(
        job="j", rank=rank, start_ns=at, end_ns=at, published_ns=at, state="exited", exit_code=exit_code
    )


def alerts(events):
    return [e for e in events if isinstance(e, AlertEvent)]


def frames(events):
    return [e for e in events if isinstance(e, FrameEvent)]


def seconds(events):
    return [f.start_ns // SECOND - START for f in frames(events)]


@pytest.fixture
def pipeline():
    return Pipeline()


def push(pipeline, events):
    return [out for event in events for out in pipeline.push(event)]


def test_frames_come_once_their_window_is_closed(pipeline):
    assert seconds(push(pipeline, [told(0), told(0, 1)])) == []
    assert seconds(push(pipeline, [told(1)])) == [0]
    assert seconds(pipeline.finish()) == [1]


def test_jobs_do_not_touch_each_other(pipeline):
    out = push(pipeline, [event for n in range(5) for event in (told(n, job="a"), told(n, 7, job="b"))])
    assert {(f.job, tuple(f.ranks)) for f in frames(out)} == {("a", (0,)), ("b", (7,))}


def test_a_job_that_is_idle_by_the_clock_is_closed_by_it(pipeline):
    push(pipeline, [told(0), told(1)])
    assert pipeline.tick((START + 31) * SECOND) == []
    assert seconds(pipeline.tick((START + 33) * SECOND)) == [1]
    # the silence itself is seen once somebody speaks again
    assert seconds(push(pipeline, [told(40), told(41)]))[:3] == [2, 3, 4]


def test_the_publication_of_other_jobs_events_is_a_clock_too(pipeline):
    push(pipeline, [told(0), told(1)])
    assert seconds(push(pipeline, [told(40, job="other")])) == [1]


def test_a_live_tick_and_a_replay_without_ticks_give_the_same():
    events = [told(n) for n in range(4)] + [told(50 + n) for n in range(4)]
    live, replayed = Pipeline(), Pipeline()
    out = push(live, events[:4]) + live.tick((START + 45) * SECOND) + push(live, events[4:]) + live.finish()
    assert out == push(replayed, events) + replayed.finish()


def test_a_job_not_heard_of_for_an_hour_is_forgotten(pipeline):
    push(pipeline, [told(0), told(1)])
    pipeline.tick((START + 2) * SECOND + RETIREMENT_NS + SECOND)
    told_so_far = pipeline.statistics()
    assert (told_so_far.jobs, told_so_far.ranks) == (0, 0)
    assert told_so_far.events == 2


def test_a_restarted_job_retires_the_one_before(pipeline):
    push(pipeline, [told(n, rank) for n in range(3) for rank in (0, 1)])
    out = push(pipeline, [told(n, 5, incarnation=1) for n in (3, 4, 5)])
    out += push(pipeline, [told(5, 0)]) + pipeline.finish()
    after = [f for f in frames(out) if f.start_ns >= (START + 3) * SECOND]
    assert {(f.incarnation, tuple(f.ranks)) for f in after} == {(1, (5,))}
    assert pipeline.statistics().stale == 1


def test_what_a_restarted_job_left_open_is_resolved_also_by_a_restored_pipeline(pipeline):
    push(pipeline, [told(0, rank) for rank in (0, 1)])
    killed = push(pipeline, [end_of(1, 1, exit_code=-9), *(told(n) for n in (1, 2, 3))])
    assert [(a.state, a.cause, a.incarnation) for a in alerts(killed)] == [("open", "crash", 0)]
    payload = pipeline.snapshot()
    out = push(pipeline, [told(n, 0, incarnation=1) for n in (4, 5, 6)])
    resolved = alerts(out)
    assert [(a.state, a.incident, a.incarnation) for a in resolved] == [("resolved", alerts(killed)[0].incident, 0)]
    assert resolved[0].resolved_at_ns == (START + 5) * SECOND
    successor = Pipeline()
    successor.restore(payload)
    again = alerts(push(successor, [told(n, 0, incarnation=1) for n in (4, 5, 6)]))
    assert [a.id for a in again] == [a.id for a in resolved]


def test_what_was_left_out_stays_counted_when_the_job_restarts(pipeline):
    push(pipeline, [told(0), told(0, None), told(0, 10**9), told(1), told(1, incarnation=1), told(2, incarnation=1)])
    pipeline.finish()
    counts = pipeline.statistics()
    assert (counts.unranked, counts.refused) == (1, 1)
    successor = Pipeline()
    successor.restore(pipeline.snapshot())
    assert (successor.statistics().unranked, successor.statistics().refused) == (1, 1)


def test_a_job_whose_processes_have_all_ended_is_not_judged_any_more(pipeline):
    end = ProcessEvent(
        job="j", rank=0, start_ns=(START + 1) * SECOND, end_ns=(START + 1) * SECOND, state="exited", exit_code=0
    )
    node = [told(n, None, role="node") for n in range(2, 6)]
    assert seconds(push(pipeline, [told(0), end, *node]) + pipeline.finish()) == [0, 1]


def test_a_broken_clock_is_refused_and_counted(pipeline):
    push(pipeline, [told(n) for n in range(3)])
    push(pipeline, [told(10**6)])
    assert seconds(push(pipeline, [told(3)])) == [2]
    assert pipeline.statistics().refused == 1


def test_a_broken_clock_among_good_ones_shuts_nobody_out(pipeline):
    out = push(pipeline, [event for n in range(6) for event in (told(n), told(n, 1), told(n + 10**6, 2))])
    assert seconds(out) == [0, 1, 2, 3, 4]
    assert pipeline.statistics().refused == 5  # the newest is still under suspicion
    assert pipeline.statistics().late == 0


def test_after_a_long_pause_nothing_is_lost(pipeline):
    out = push(pipeline, [told(n) for n in range(3)] + [told(10**4 + n) for n in range(6)]) + pipeline.finish()
    assert seconds(out) == [0, 1, 2] + [10**4 + n for n in range(6)]
    assert pipeline.statistics().refused == 0


def test_what_the_pipeline_writes_itself_is_not_read(pipeline):
    out = push(pipeline, [told(n) for n in range(3)])
    assert push(pipeline, frames(out)) == []
    assert pipeline.statistics().ignored == 2


def test_statistics_count_what_happened(pipeline):
    push(pipeline, [told(n, rank, lost=1) for n in range(4) for rank in (0, 1)])
    pipeline.push(told(0))
    pipeline.finish()
    counts = pipeline.statistics()
    assert (counts.events, counts.windows, counts.frames, counts.rank_windows) == (9, 4, 4, 8)
    assert (counts.late, counts.lost, counts.jobs, counts.ranks) == (1, 8, 1, 2)


def test_foreign_snapshots_are_refused_in_one_line(pipeline):
    push(pipeline, [told(0)])
    with pytest.raises(InputError, match=r"window\.size_ms=1000; here it is 500"):
        Pipeline(load(settings=["window.size_ms=500"])).restore(pipeline.snapshot())
    with pytest.raises(InputError, match="no snapshot of ours"):
        pipeline.restore(b"hello")


def test_readings_from_elsewhere_become_frames(pipeline):
    at = START * SECOND
    event = SamplesEvent(
        job="j", rank=3, start_ns=at, end_ns=at + SECOND, name=["step_seconds", "mine"], value=np.array([0.5, 7.0])
    )
    push(pipeline, [event])
    (frame,) = frames(pipeline.finish())
    assert frame.features == ["step_seconds", "mine"]
    assert frame.values.tolist() == [[0.5, 7.0]]


def test_names_of_readings_that_find_no_room_are_counted(pipeline):
    at = START * SECOND
    names = [f"metric_{n:04}" for n in range(MOST_OTHERS + 3)]
    one = SamplesEvent(job="j", rank=0, start_ns=at, end_ns=at + SECOND, name=names, value=np.ones(len(names)))
    (frame,) = frames(push(pipeline, [one]) + pipeline.finish())
    assert len(frame.features) == MOST_OTHERS
    assert pipeline.statistics().refused == 3


@pytest.mark.parametrize(("leak_bytes", "found"), [(0, []), (20_000_000, [("gpu_memory", [2])])])
def test_a_leak_is_told_from_what_a_process_allocates_without_any_reading_of_the_gpu(pipeline, leak_bytes, found):
    plan = ClusterPlan(n_ranks=4, seconds=400, seed=3, loss_probability=0.0)
    out = []
    for event in simulate(plan):
        if isinstance(event, GpuEvent):
            continue
        if isinstance(event, CallsEvent) and event.rank is not None:
            second = event.start_ns // SECOND - START_SECONDS
            event.cuda_allocated_bytes = 1_000_000_000 + (leak_bytes * second if event.rank == 2 else 0)
        out += pipeline.push(event)
    out += pipeline.finish()
    assert [(a.cause, a.ranks.tolist()) for a in alerts(out) if a.state == "open"] == found
    if found:
        (opened,) = [a for a in alerts(out) if a.state == "open"]
        assert opened.evidence[0].feature == "cuda_allocated_bytes"
