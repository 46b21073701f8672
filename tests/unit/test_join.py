import numpy as np
import pytest

from eacgm.config import JoinConfig
from eacgm.events import CallsEvent, CollectivesEvent, GpuEvent, HostEvent, ProcessEvent, SamplesEvent
from eacgm.streams.join import Join
from eacgm.streams.window import ClosedWindow

SECOND = 1_000_000_000


def event(kind, rank, second=0, **fields):
    fields = {"node": "a", "role": "rank", **fields}
    return kind(job="j", rank=rank, start_ns=second * SECOND, end_ns=(second + 1) * SECOND, **fields)


def close(join, *events, second=0):
    return join.close(ClosedWindow(second * SECOND, (second + 1) * SECOND, list(events)))


@pytest.fixture
def join():
    return Join(JoinConfig())


def test_nobody_known_gives_nothing(join):
    assert close(join) is None
    assert close(join, event(HostEvent, None, role="node")) is None


def test_there_is_a_row_per_rank_in_order_of_rank(join):
    joined = close(join, *(event(HostEvent, rank) for rank in (3, 0, 2)))
    assert joined.ranks.tolist() == [0, 2, 3]
    assert [e.rank for e in joined.hosts.events] == [0, 2, 3]
    assert joined.hosts.rows.tolist() == [0, 1, 2]


def test_a_rank_of_the_world_that_was_never_seen_is_a_row_that_says_so(join):
    joined = close(join, event(ProcessEvent, 1, world_size=3))
    assert joined.ranks.tolist() == [0, 1, 2]
    assert joined.present.tolist() == [False, True, False]
    assert joined.gone.tolist() == [False, False, False]


def test_a_silent_rank_is_missing_and_an_exited_one_is_gone(join):
    close(join, *(event(HostEvent, rank) for rank in range(3)))
    now = close(join, event(HostEvent, 0, 1), event(ProcessEvent, 1, 1, state="exited", exit_code=-9), second=1)
    assert now.present.tolist() == [True, True, False]
    assert now.ended.tolist() == [False, True, False]
    assert now.exit_code[1] == -9
    later = close(join, event(HostEvent, 0, 2), second=2)
    assert later.present.tolist() == [True, False, False]
    assert later.gone.tolist() == [False, True, False]
    assert not later.ended.any()


def test_an_exit_is_told_once_and_a_predecessors_end_is_not_the_ranks(join):
    close(join, event(ProcessEvent, 0, pid=7))
    old = event(ProcessEvent, 0, 1, pid=6, state="exited", exit_code=1)
    assert not close(join, old, second=1).ended.any()
    end = event(ProcessEvent, 0, 2, pid=7, state="exited")
    first = close(join, end, second=2)
    assert first.ended.all()
    assert np.isnan(first.exit_code[0])
    assert not close(join, end, second=3).ended.any()


def test_a_rank_that_comes_back_is_no_longer_gone(join):
    close(join, event(ProcessEvent, 0, pid=7), event(HostEvent, 1))
    close(join, event(ProcessEvent, 0, 1, pid=7, state="exited"), second=1)
    back = close(join, event(ProcessEvent, 0, 2, pid=8), second=2)
    assert back.present[0]
    assert not close(join, event(HostEvent, 1, 3), second=3).gone[0]


def test_identity_is_remembered(join):
    close(join, event(ProcessEvent, 0, group="pp1", gpu_uuids=["GPU-x"]))
    joined = close(
        join, event(HostEvent, 0, 1), event(GpuEvent, None, 1, role="node", gpu_uuid="GPU-x", pid=0), second=1
    )
    assert (joined.nodes, joined.groups) == (["a"], ["pp1"])
    assert joined.gpus.rows.tolist() == [0]


def test_a_gpu_nobody_claims_goes_to_the_processes_on_it(join):
    gpu = event(GpuEvent, None, role="node", gpu_uuid="GPU-y", process_pid=np.array([12, 99]))
    joined = close(join, event(ProcessEvent, 0, pid=11), event(ProcessEvent, 1, pid=12), gpu)
    assert joined.gpus.rows.tolist() == [1]


def test_a_nodes_readings_go_to_all_its_ranks(join):
    events = [event(HostEvent, rank, node=node) for rank, node in ((0, "a"), (1, "b"), (2, "a"))]
    joined = close(join, *events, event(HostEvent, None, role="node", oom_kills=1.0))
    assert joined.node_hosts.rows.tolist() == [0, 2]


def test_groups_of_samples_are_learnt(join):
    joined = close(join, event(SamplesEvent, 0, group="s0"), event(SamplesEvent, 1, group="s1"))
    assert joined.groups == ["s0", "s1"]


def test_a_message_delivered_twice_counts_once(join):
    host = event(HostEvent, 0, sequence=5, lost=0)
    joined = close(join, host, host, event(HostEvent, 1, sequence=6))
    assert joined.hosts.rows.tolist() == [0, 1]
    assert join.duplicates == 1


def test_a_process_of_unknown_rank_is_counted_and_left_out(join):
    joined = close(join, event(CallsEvent, None), event(HostEvent, 0))
    assert joined.calls.events == []
    assert join.unranked == 1


def test_an_impossible_rank_is_refused():
    join = Join(JoinConfig(max_ranks=4))
    joined = close(join, event(HostEvent, 0), event(HostEvent, 1_000_000), event(ProcessEvent, 1, world_size=10**9))
    assert joined.ranks.tolist() == [0, 1]
    assert join.roster.refused == 1


def test_losses_stand_with_their_ranks(join):
    joined = close(join, event(HostEvent, 0, lost=2), event(CallsEvent, 0, lost=3), event(HostEvent, 1))
    assert joined.lost.tolist() == [5, 0]


def test_workers_are_not_the_rank(join):
    joined = close(join, event(HostEvent, 0, 0, role="worker", pid=5), event(HostEvent, 1))
    assert joined.present.tolist() == [False, True]
    assert joined.workers.rows.tolist() == [0]


def test_the_order_of_events_does_not_matter(join):
    events = [
        event(kind, rank, pid=rank, sequence=n + 1)
        for n, (kind, rank) in enumerate(
            (kind, rank) for kind in (HostEvent, CallsEvent, CollectivesEvent, ProcessEvent) for rank in (2, 0, 1)
        )
    ]
    one, other = close(join, *events), close(Join(JoinConfig()), *reversed(events))
    assert one.hosts.events == other.hosts.events
    assert one.calls.events == other.calls.events
    assert one.ranks.tolist() == other.ranks.tolist()


def test_one_process_alone_is_not_believed_a_huge_world(join):
    assert close(join, event(ProcessEvent, 1, world_size=60_000)).ranks.tolist() == [1]
    told = [event(ProcessEvent, rank, world_size=60_000) for rank in range(1000)]
    assert close(join, *told, second=1).ranks.size == 60_000
    assert close(Join(JoinConfig()), event(ProcessEvent, 0, world_size=4096)).ranks.size == 4096
