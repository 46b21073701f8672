from dataclasses import replace

import numpy as np
import pytest

from eacgm.errors import UsageError
from eacgm.events import CallsEvent, CollectivesEvent, GpuEvent, HostEvent, ProcessEvent
from eacgm.producers.simulation import simulate
from eacgm.producers.simulation_plan import FAULT_KINDS, START_SECONDS, ClusterPlan, labels, parse_faults
from eacgm.producers.simulation_steps import TRAIN, Job
from eacgm.schemas import decode, encode

PLAN = ClusterPlan(n_ranks=4, seconds=60, seed=3, ranks_per_node=2, loss_probability=0.0)


def planted(*faults, **changes):
    plan = replace(PLAN, **changes)
    return replace(plan, faults=parse_faults(faults, plan))


def timeline_means(plan, name, begin_s=30, end_s=50):
    """Mean of a step's part per rank, over the training steps that begin in the given seconds."""
    timeline = Job(plan).run()
    started = timeline.begin[:, 0]
    steps = (timeline.kind == TRAIN) & (started >= begin_s) & (started < end_s)
    parts = {
        "wait": (timeline.leave - timeline.enter).sum(axis=1),
        "work": timeline.computed - timeline.loaded,
        "data": timeline.loaded - timeline.begin,
        "step": timeline.ready - timeline.begin,
    }
    return parts[name][steps].mean(axis=0)


def told(plan, kind, rank=None, second=None):
    return [
        event
        for event in simulate(plan)
        if type(event) is kind
        and (rank is None or event.rank == rank)
        and (second is None or event.start_ns // 10**9 - START_SECONDS == second)
    ]


def open_calls(plan, rank, second):
    (calls,) = told(plan, CallsEvent, rank, second)
    rows = zip(calls.function, calls.open_count.tolist(), calls.open_age_ns.tolist(), strict=True)
    return {function: age / 1e9 for function, count, age in rows if count}


def test_the_same_seed_gives_the_same_bytes_and_another_does_not():
    first, second = ([encode(event) for event in simulate(planted("gc_pause"))] for _ in range(2))
    assert first == second
    other = [encode(event) for event in simulate(planted("gc_pause", seed=4))]
    assert other != first


def test_every_message_survives_avro():
    kinds = set()
    for event in simulate(planted("gpu_hardware@1:20", seconds=30)):
        assert decode(encode(event)) == event
        kinds.add(type(event))
    assert kinds == {ProcessEvent, CallsEvent, CollectivesEvent, HostEvent, GpuEvent}


def test_messages_come_in_the_order_of_publication_and_number_themselves():
    events = list(simulate(PLAN))
    published = [event.published_ns for event in events]
    assert published == sorted(published)
    for node in ("n0", "n1"):
        numbers = [event.sequence for event in events if event.node == node]
        assert numbers == list(range(1, len(numbers) + 1))


def test_collectives_agree_between_ranks_and_end_together():
    ends = {}
    for event in told(PLAN, CollectivesEvent):
        for number, operation, start, end in zip(
            event.call_sequence.tolist(),
            event.operation,
            event.call_start_ns.tolist(),
            event.call_end_ns.tolist(),
            strict=True,
        ):
            assert start <= end
            ends.setdefault((number, operation), {})[event.rank] = end
    whole = [by_rank for by_rank in ends.values() if len(by_rank) == PLAN.n_ranks]
    assert len(whole) > 300
    # within the clocks' error and the jitter of the last bytes
    spread_ns = max(max(by_rank.values()) - min(by_rank.values()) for by_rank in whole)
    assert spread_ns < 2 * PLAN.clock_error_ns + 500_000
    assert len({number for number, _ in ends}) == len(ends)


def test_a_collective_is_told_once_with_the_interval_in_which_it_ended():
    for event in told(PLAN, CollectivesEvent):
        assert ((event.call_end_ns > event.start_ns - 1000) & (event.call_end_ns <= event.end_ns + 1000)).all()
    numbers = [number for event in told(PLAN, CollectivesEvent, rank=0) for number in event.call_sequence.tolist()]
    assert numbers == list(range(len(numbers)))


def test_the_calls_histogram_counts_every_call():
    for event in told(PLAN, CallsEvent):
        counted = np.zeros(len(event.function), dtype=np.int64)
        np.add.at(counted, event.histogram_row, event.histogram_count)
        assert counted.tolist() == event.count.tolist()


def test_the_step_threads_time_adds_up_to_at_most_the_interval():
    for event in told(PLAN, HostEvent):
        if event.role == "rank":
            spent = event.step_thread_cpu_seconds + event.step_thread_run_queue_wait_seconds
            assert 0 <= spent + event.step_thread_blocked_seconds <= 1 + 1e-9


def test_the_slow_rank_waits_least():
    wait = timeline_means(planted("slow_compute@2:30-50"), "wait")
    assert wait.argmin() == 2
    assert wait[2] < 0.5 * np.delete(wait, 2).min()


@pytest.mark.parametrize(
    ("fault", "part", "rank"),
    [
        ("slow_compute@2:30-50", "work", 2),
        ("gpu_throttle@1:30-50", "work", 1),
        ("pcie@3:30-50", "work", 3),
        ("data_stall@0:30-50", "data", 0),
        ("gc_pause@1:30-50", "work", 1),
    ],
)
def test_a_fault_lengthens_its_own_part_of_its_own_rank(fault, part, rank):
    healthy, sick = timeline_means(PLAN, part), timeline_means(planted(fault), part)
    assert sick[rank] > 1.1 * healthy[rank]
    np.testing.assert_allclose(np.delete(sick, rank), np.delete(healthy, rank), rtol=0.1)


def test_a_slow_path_lengthens_everyones_collectives_and_nobodys_work():
    plan = planted("network@2:30-50")
    assert plan.faults[0].ranks == (2, 3)
    assert (timeline_means(plan, "wait") > 1.5 * timeline_means(PLAN, "wait")).all()
    np.testing.assert_allclose(timeline_means(plan, "work"), timeline_means(PLAN, "work"), rtol=0.1)
    rtt = {event.rank: event.net_rtt_seconds for event in told(plan, HostEvent, second=40) if event.role == "rank"}
    assert min(rtt[2], rtt[3]) > 2 * max(rtt[0], rtt[1])


def test_contention_shows_as_waiting_for_a_cpu_on_the_whole_node():
    plan = planted("host_contention@0:30-50")
    waits = {e.rank: e.run_queue_wait_seconds for e in told(plan, HostEvent, second=40) if e.role == "rank"}
    assert min(waits[0], waits[1]) > 5 * max(waits[2], waits[3])


def test_in_a_hang_the_culprit_has_no_collective_open_and_the_others_grow_old():
    plan = planted("hang@2:30")
    assert "allreduce" not in open_calls(plan, 2, 45)
    assert open_calls(plan, 2, 45)["cudaStreamSynchronize"] > 13
    assert open_calls(plan, 0, 45)["allreduce"] > 13
    assert open_calls(plan, 0, 55)["allreduce"] == pytest.approx(open_calls(plan, 0, 45)["allreduce"] + 10)
    (waiting,) = told(plan, CollectivesEvent, 0, 45)
    assert waiting.open_operation == ["allreduce"]


def test_after_a_hang_that_ends_the_job_goes_on():
    plan = planted("hang@2:30-40")
    (calls,) = told(plan, CallsEvent, 2, 50)
    assert calls.count[calls.function.index("backward")] > 0


def test_a_crash_ends_the_process_and_the_watchdog_its_peers():
    plan = planted("crash@1:20.5", seconds=100)
    ends = {event.rank: event for event in told(plan, ProcessEvent) if event.state == "exited"}
    second = {rank: event.start_ns // 10**9 - START_SECONDS for rank, event in ends.items()}
    assert second == {1: 20, 0: 80, 2: 80, 3: 80}
    assert {rank: event.exit_code for rank, event in ends.items()} == {1: -11, 0: -6, 2: -6, 3: -6}
    assert not told(plan, CallsEvent, 1, 21)
    assert told(plan, HostEvent, second=99)


def test_a_lost_gpu_logs_its_xid_once_and_then_only_that_it_is_lost():
    plan = planted("gpu_hardware@1:20")
    mine = [event for event in told(plan, GpuEvent) if event.gpu_uuid.startswith("GPU-00000001")]
    assert [event.start_ns // 10**9 - START_SECONDS for event in mine if event.xids] == [20]
    assert all(event.power_watts is None and event.lost_device for event in mine[21:])
    assert not any(event.lost_device for event in mine[:20])


def test_a_throttled_gpu_shows_its_clock_and_its_reason():
    gpus = {e.gpu_index: e for e in told(planted("gpu_throttle@1:30-50"), GpuEvent, second=40) if e.node == "n0"}
    assert gpus[1].sm_clock_hertz < 0.7 * gpus[0].sm_clock_hertz
    assert gpus[1].throttle_reasons & 0x4


def test_a_leak_grows_on_the_struck_ranks_only():
    plan = planted("gpu_memory@0:20")
    grown = {}
    for event in told(plan, GpuEvent):
        if event.node == "n0":
            grown.setdefault(event.gpu_index, []).append(event.memory_used_bytes)
    assert grown[0][59] - grown[0][25] > 1e9
    assert grown[1][59] - grown[1][30] < 1e8


def test_a_stalled_checkpoint_keeps_the_peers_in_a_barrier_while_bytes_trickle():
    plan = planted("checkpoint_stall:20-50")
    assert open_calls(plan, 1, 40)["barrier"] > 15
    writers = {event.rank: event.io_written_bytes for event in told(plan, HostEvent, second=40) if event.role == "rank"}
    assert writers[0] > 1e6 > max(writers[rank] for rank in (1, 2, 3))


def test_lost_telemetry_is_silence_of_one_node_while_the_job_goes_on():
    plan = planted("telemetry_lost@2:30-40")
    assert {event.node for event in simulate(plan) if event.start_ns // 10**9 - START_SECONDS == 35} == {"n0"}
    (after,) = told(plan, CollectivesEvent, 2, 45)
    (before,) = told(plan, CollectivesEvent, 2, 25)
    assert after.call_sequence[0] > before.call_sequence[-1] + 20


def test_a_lost_interval_leaves_a_hole_in_the_sequence():
    plan = replace(PLAN, loss_probability=0.05)
    events = [event for event in simulate(plan) if event.node == "n0"]
    numbers = [event.sequence for event in events]
    assert len(numbers) < numbers[-1]


def test_warm_up_evaluation_and_checkpoints_are_seen():
    plan = replace(PLAN, seconds=120, checkpoint_every_seconds=50.0, eval_every_seconds=90.0)
    beats = {}
    for event in told(plan, CallsEvent, rank=0):
        counts = dict(zip(event.function, event.count.tolist(), strict=True))
        beats[event.start_ns // 10**9 - START_SECONDS] = counts.get("backward", 0)
    assert beats[2] < beats[30]
    assert beats[51] == 0 < beats[58]
    assert beats[85] == 0 < beats[100]


def test_every_kind_of_fault_can_be_planted_without_more_words():
    for kind in FAULT_KINDS:
        plan = planted(kind)
        (label,) = labels(plan)["faults"]
        assert label["fault"] == kind
        assert (label["ranks"] == []) == (FAULT_KINDS[kind] == "job")
        assert sum(1 for _ in simulate(plan)) > 500


def test_one_rank_alone_runs():
    assert sum(1 for _ in simulate(ClusterPlan(n_ranks=1, seconds=20, seed=0))) > 60


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("slow", "unknown fault 'slow'"),
        ("hang@9:10-20", "rank 9 is not there; expected 0 to 3"),
        ("hang@1:20-10", "expected a start before its end"),
        ("hang@1:70-80", "within 0-60 s"),
        ("hang@x", "malformed"),
        ("hang@1:a-b", "malformed"),
        ("job_slowdown@1", "strikes the whole job"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(fault, expected):
    with pytest.raises(UsageError, match=expected):
        parse_faults([fault], PLAN)


def test_a_cluster_that_does_not_fit_into_memory_is_refused():
    with pytest.raises(UsageError, match="rank-seconds"):
        ClusterPlan(n_ranks=65_536, seconds=86_400, seed=0)
