import numpy as np
import pytest

from eacgm.config import Config
from eacgm.events import CallsEvent, CollectivesEvent, GpuEvent, HostEvent, ProcessEvent, SamplesEvent
from eacgm.streams.features import Features
from eacgm.streams.join import Join
from eacgm.streams.window import ClosedWindow

SECOND = 1_000_000_000
MS = 1_000_000


def event(kind, rank, second=0, seconds=1.0, **fields):
    fields = {"node": "a", "role": "rank", **fields}
    start = second * SECOND
    return kind(job="j", rank=rank, start_ns=start, end_ns=start + int(seconds * SECOND), **fields)


def calls(rank, second=0, seconds=1.0, rows=(), **fields):
    """Rows of (layer, function, count, total seconds, errors, bytes, open age in seconds)."""
    columns = list(zip(*rows, strict=True)) or [()] * 7

    def whole(values, unit=1):
        return np.array([round(v * unit) for v in values], dtype=np.int64)

    return event(
        CallsEvent,
        rank,
        second,
        seconds,
        layer=list(columns[0]),
        function=list(columns[1]),
        count=whole(columns[2]),
        total_ns=whole(columns[3], SECOND),
        errors=whole(columns[4]),
        payload_bytes=whole(columns[5]),
        max_ns=whole(columns[3], SECOND),
        open_count=whole([1 if age else 0 for age in columns[6]]),
        open_age_ns=whole(columns[6], SECOND),
        **fields,
    )


def backward(rank, count, second=0, **fields):
    return calls(rank, second, rows=[("pytorch", "backward", count, 0.05 * count, 0, 0, 0)], **fields)


class Room:
    """Join and features of one job, window by window."""

    def __init__(self):
        self.join = Join(Config().join)
        self.features = Features(Config())
        self.second = 0

    def __call__(self, *events):
        window = ClosedWindow(self.second * SECOND, (self.second + 1) * SECOND, list(events))
        self.second += 1
        joined = self.join.close(window)
        assert joined is not None
        return self.features.frame(joined, "j", 0)


def column(frame, name):
    return frame.values[:, frame.features.index(name)]


@pytest.fixture
def room():
    return Room()


def test_only_what_was_ever_told_is_a_column_in_the_catalogues_order(room):
    frame = room(
        event(HostEvent, 0, cpu_seconds=0.5, rss_bytes=1e6), event(SamplesEvent, 0, name=["zz", "aa"], value=np.ones(2))
    )
    assert [n for n in frame.features if n not in ("exited", "exit_code", "lost_events")] == [
        "cpu_seconds",
        "rss_bytes",
        "aa",
        "zz",
    ]


def test_what_was_not_told_is_not_a_number(room):
    frame = room(event(HostEvent, 0, cpu_seconds=0.5), event(HostEvent, 1))
    assert np.isnan(column(frame, "cpu_seconds")[1])


def test_backwards_are_steps(room):
    frame = room(backward(0, 8), backward(1, 8))
    assert column(frame, "step_count").tolist() == [8, 8]
    assert column(frame, "step_seconds") == pytest.approx([0.125, 0.125])
    assert column(frame, "backward_seconds") == pytest.approx([0.05, 0.05])


def test_a_step_longer_than_a_window_counts_where_it_ends_with_its_whole_length(room):
    room(backward(0, 1, 0))
    still = calls(0, 1, rows=[("pytorch", "backward", 0, 0, 0, 0, 0.9)])
    frame = room(still)
    assert np.isnan(column(frame, "step_seconds")[0])
    assert column(frame, "step_count")[0] == 0
    room(calls(0, 2, rows=[("pytorch", "backward", 0, 0, 0, 0, 1.9)]))
    frame = room(backward(0, 1, 3))
    assert column(frame, "step_seconds")[0] == pytest.approx(3.0)


def test_collectives_tell_the_step_finer_than_counting(room):
    # 0.3 s a step: three or four backwards end in a second, and three collectives in each step
    seen = []
    ends = np.arange(1, 120) * 0.1
    for second in range(11):
        inside = np.flatnonzero((ends > second) & (ends <= second + 1))
        n_steps = int(np.sum((np.arange(1, 40) * 0.3 > second) & (np.arange(1, 40) * 0.3 <= second + 1)))
        frame = room(
            backward(0, n_steps, second),
            event(
                CollectivesEvent,
                0,
                second,
                communicator=["c"] * inside.size,
                operation=["allreduce"] * inside.size,
                call_sequence=inside,
                payload_bytes=np.full(inside.size, 1000),
                call_start_ns=((ends[inside] - 0.02) * SECOND).astype(np.int64),
                call_end_ns=(ends[inside] * SECOND).astype(np.int64),
                return_code=np.zeros(inside.size, dtype=np.int64),
            ),
        )
        if second >= 5:
            seen.append((column(frame, "step_seconds")[0], column(frame, "collective_seconds")[0]))
    step, collective = np.array(seen).T
    assert step == pytest.approx(np.full(6, 0.3), rel=0.01)
    assert collective == pytest.approx(np.full(6, 0.06), rel=0.01)
    assert column(frame, "collective_bytes")[0] == pytest.approx(1000 * column(frame, "collective_count")[0])


def test_waiting_for_data_and_computing_are_shares_of_a_step(room):
    host = event(
        HostEvent,
        0,
        step_thread_blocked_seconds=0.2,
        step_thread_cpu_seconds=0.5,
        step_thread_run_queue_wait_seconds=0.1,
    )
    frame = room(backward(0, 4), host)
    assert column(frame, "data_wait_seconds")[0] == pytest.approx(0.05)
    assert column(frame, "compute_seconds")[0] == pytest.approx(0.15)


def test_a_step_thread_that_was_not_seen_is_not_told(room):
    frame = room(backward(0, 4), event(HostEvent, 0, cpu_seconds=0.1))
    assert "compute_seconds" not in frame.features


def test_counters_of_a_longer_interval_are_brought_to_one_window(room):
    frame = room(
        event(HostEvent, 0, seconds=2.0, cpu_seconds=1.0, rss_bytes=5.0),
        calls(0, seconds=2.0, rows=[("cuda", "cudaLaunchKernel", 100, 0.1, 0, 0, 0)]),
    )
    assert column(frame, "cpu_seconds")[0] == pytest.approx(0.5)
    assert column(frame, "cuda_launches")[0] == pytest.approx(50)
    assert column(frame, "rss_bytes")[0] == 5.0


def test_several_intervals_in_a_window_add_up_and_gauges_keep_the_last(room):
    halves = [event(HostEvent, 0, cpu_seconds=0.2, rss_bytes=1.0, seconds=0.5)]
    halves.append(
        HostEvent(job="j", rank=0, node="a", start_ns=SECOND // 2, end_ns=SECOND, cpu_seconds=0.3, rss_bytes=2.0)
    )
    frame = room(*halves)
    assert column(frame, "cpu_seconds")[0] == pytest.approx(0.5)
    assert column(frame, "rss_bytes")[0] == 2.0


def test_cuda_calls_are_told_by_what_they_do(room):
    frame = room(
        calls(
            0,
            rows=[
                ("cuda", "cudaLaunchKernel", 300, 0.03, 1, 0, 0),
                ("cuda", "cudaGraphLaunch", 2, 0.01, 0, 0, 0),
                ("cuda", "cudaStreamSynchronize", 8, 0.4, 0, 0, 0),
                ("cuda", "cudaMemcpyAsync", 16, 0.02, 2, 4096, 0),
                ("python", "gc", 1, 0.2, 0, 0, 0),
            ],
        )
    )
    told = {name: column(frame, name)[0] for name in frame.features}
    assert told["cuda_launches"] == 302
    assert told["cuda_launch_seconds"] == pytest.approx(0.04)
    assert told["cuda_sync_seconds"] == pytest.approx(0.4)
    assert told["cuda_memcpy_seconds"] == pytest.approx(0.02)
    assert told["cuda_memcpy_bytes"] == 4096
    assert told["cuda_errors"] == 3
    assert (told["gc_seconds"], told["gc_count"]) == (pytest.approx(0.2), 1)


def test_only_the_backward_itself_is_a_step(room):
    around = [("pytorch", name, 8, 0.1, 0, 0, 0) for name in ("ddp_prepare_for_backward", "ddp_finalize_backward")]
    frame = room(calls(0, rows=[("pytorch", "backward", 8, 0.4, 0, 0, 0), *around]))
    assert column(frame, "step_count")[0] == 8
    assert column(frame, "backward_seconds")[0] == pytest.approx(0.05)
    assert column(frame, "step_seconds")[0] == pytest.approx(0.125)


def test_what_a_seen_process_did_not_do_is_zero_and_of_an_unseen_one_unknown(room):
    launch = [("cuda", "cudaLaunchKernel", 300, 0.03, 0, 0, 0)]
    room(calls(0, rows=launch), calls(1, rows=launch), event(HostEvent, 2, cpu_seconds=1.0))
    frame = room(event(HostEvent, 0, 1, cpu_seconds=1.0), event(HostEvent, 2, 1, cpu_seconds=1.0))
    launches = column(frame, "cuda_launches")
    assert launches[0] == 0
    assert np.isnan(launches[1])
    assert np.isnan(launches[2])
    assert frame.present == [True, False, True]


def test_calls_in_flight_are_told_with_their_age(room):
    opened = event(
        CollectivesEvent,
        1,
        open_communicator=["c"],
        open_operation=["allreduce"],
        open_call_sequence=np.array([9]),
        open_call_start_ns=np.array([int(0.3 * SECOND)]),
    )
    frame = room(calls(0, rows=[("pytorch", "backward", 0, 0, 0, 0, 2.5)]), opened)
    assert column(frame, "call_open_seconds") == pytest.approx([2.5, 0.7])
    assert column(frame, "collective_open_seconds")[1] == pytest.approx(0.7)
    assert column(frame, "collective_open_count")[1] == 1


def test_errors_of_collectives_are_counted(room):
    failed = event(
        CollectivesEvent,
        0,
        communicator=["c", "c"],
        operation=["allreduce"] * 2,
        call_sequence=np.arange(2),
        payload_bytes=np.array([-1, -1]),
        call_start_ns=np.array([0, 1]),
        call_end_ns=np.array([1, 2]),
        return_code=np.array([0, 3]),
    )
    frame = room(failed)
    assert column(frame, "collective_errors")[0] == 1
    assert "collective_bytes" not in frame.features  # the library does not tell


def test_workers_and_stops_and_ends(room):
    frame = room(
        event(HostEvent, 0, stopped=True, stopped_seconds=0.8),
        event(HostEvent, 0, role="worker", pid=7, cpu_seconds=0.2),
        event(HostEvent, 0, role="worker", pid=8, cpu_seconds=0.3),
        event(ProcessEvent, 1, state="exited", exit_code=-9),
    )
    assert column(frame, "stopped_ratio")[0] == pytest.approx(0.8)
    assert column(frame, "worker_cpu_seconds")[0] == pytest.approx(0.5)
    assert column(frame, "exited").tolist() == [0, 1]
    assert column(frame, "exit_code").tolist() == [0, -9]


def test_a_gpu_shows_what_it_supports(room):
    gpu = event(
        GpuEvent, None, role="node", gpu_uuid="G", power_watts=300.0, throttle_reasons=4, xids=[79], lost_device=True
    )
    frame = room(event(ProcessEvent, 0, gpu_uuids=["G"]), gpu)
    told = {name: column(frame, name)[0] for name in frame.features}
    assert told["gpu_power_watts"] == 300
    assert told["gpu_throttle_reasons"] == 4
    assert told["gpu_xid"] == 79
    assert told["gpu_lost"] == 1
    assert "gpu_temperature_celsius" not in frame.features


def test_a_nodes_xid_and_kills_stand_with_its_ranks(room):
    frame = room(
        event(HostEvent, 0),
        event(HostEvent, 1, node="b"),
        event(HostEvent, None, role="node", xids=[31], oom_kills=1.0),
    )
    assert column(frame, "gpu_xid")[0] == 31
    assert column(frame, "oom_kills")[0] == 1
    assert np.isnan(column(frame, "gpu_xid")[1])


def test_repeated_readings_are_joined_by_their_kind(room):
    names = [
        "step_seconds",
        "step_seconds",
        "net_retransmits",
        "net_retransmits",
        "rss_bytes",
        "rss_bytes",
        "mine",
        "mine",
    ]
    frame = room(event(SamplesEvent, 0, name=names, value=np.array([1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0])))
    told = {name: column(frame, name)[0] for name in frame.features}
    assert told == {"step_seconds": 2.0, "net_retransmits": 4.0, "rss_bytes": 3.0, "mine": 3.0}


def test_several_messages_of_readings_are_joined_too(room):
    frame = room(*(event(SamplesEvent, 0, sequence=n, name=["net_retransmits"], value=np.array([2.0])) for n in (1, 2)))
    assert column(frame, "net_retransmits")[0] == 4.0


def test_coverage_is_the_share_of_the_expected_ranks_that_is_seen(room):
    both = [event(HostEvent, rank, cpu_seconds=1.0) for rank in (0, 1, 2, 3)]
    assert room(*both).coverage == 1.0
    assert room(*(event(HostEvent, rank, 1, cpu_seconds=1.0) for rank in (0, 1, 2))).coverage == pytest.approx(0.75)


def test_a_rank_that_has_ended_is_not_missed(room):
    room(event(HostEvent, 0, cpu_seconds=1.0), event(HostEvent, 1, cpu_seconds=1.0))
    room(event(HostEvent, 0, 1, cpu_seconds=1.0), event(ProcessEvent, 1, 1, state="exited"))
    assert room(event(HostEvent, 0, 2, cpu_seconds=1.0)).coverage == 1.0


def test_lost_events_lower_the_coverage(room):
    frame = room(backward(0, 30, lost=10))
    assert frame.lost == 10
    assert frame.coverage == pytest.approx(0.75)
    assert column(frame, "lost_events")[0] == 10


def test_the_source_may_tell_the_phase(room):
    frame = room(event(SamplesEvent, 0, phase="checkpoint", name=["a"], value=np.ones(1)))
    assert frame.phase == "checkpoint"


def test_device_memory_is_each_rank_s_last_reading_and_unknown_where_none_is_told(room):
    frame = room(
        calls(0, 0, 0.5, cuda_allocated_bytes=500),
        calls(0, 0, 1.0, cuda_allocated_bytes=700),
        calls(1, 0, cuda_allocated_bytes=0),
        calls(2, 0),
    )
    assert column(frame, "cuda_allocated_bytes").tolist()[:2] == [700.0, 0.0]
    assert np.isnan(column(frame, "cuda_allocated_bytes")[2])
