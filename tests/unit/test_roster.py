import numpy as np

from eacgm.events import HostEvent, ProcessEvent
from eacgm.streams.roster import Roster


def process(rank, node="a", uuids=(), **fields):
    return ProcessEvent(
        job="j", rank=rank, node=node, pid=100 + rank, gpu_uuids=list(uuids), start_ns=0, end_ns=1, **fields
    )


def roster(*ranks, most=64):
    made = Roster(most)
    made.admit(ranks)
    return made


def test_rows_follow_the_ranks_and_former_rows_are_told_their_place():
    made = roster(2, 7)
    assert made.admit([7, 4]).tolist() == [0, 2]
    assert made.rank_list == [2, 4, 7]
    assert made.admit([4]) is None


def test_impossible_ranks_are_refused_and_counted():
    made = roster(0, most=8)
    assert made.admit([8, -1, 10**9]) is None
    assert made.refused == 3


def test_an_end_is_told_once_and_a_predecessors_end_never():
    made = roster(0)
    made.identify(process(0))
    other = process(0, state="exited", exit_code=1)
    other.pid = 5
    assert not made.identify(other)
    assert made.identify(process(0, state="exited", exit_code=-9))
    assert not made.identify(process(0, state="exited", exit_code=-9))
    assert made.exited().tolist() == [True]
    made.identify(process(0))
    assert made.exited().tolist() == [False]


def test_a_gpu_belongs_to_who_names_it_else_to_the_processes_on_it():
    made = roster(0, 1)
    made.identify(process(0, uuids=["g0"]))
    made.identify(process(1))
    made.settle()
    assert made.rows_of_gpu("a", "g0", np.array([101])) == [0]
    assert made.rows_of_gpu("a", "g1", np.array([101, 999])) == [1]
    assert made.rows_of_gpu("b", "g1", np.array([101])) == []


def test_a_rank_that_moved_leaves_its_former_gpu_behind():
    made = roster(0)
    made.identify(process(0, uuids=["g0"]))
    made.settle()
    # the host's message from the new node comes before the process's own
    made.place(HostEvent(job="j", rank=0, node="b", start_ns=0, end_ns=1))
    made.settle()
    made.identify(process(0, node="b", uuids=["g9"]))
    made.settle()
    assert made.rows_of_gpu("a", "g0", np.array([], dtype=np.int64)) == []
    assert made.rows_of_gpu("b", "g9", np.array([], dtype=np.int64)) == [0]


def test_state_is_all_there_is():
    made, fresh = roster(0, 3), Roster(64)
    made.identify(process(3, node="b", uuids=["g"], group="pp1"))
    made.settle()
    fresh.load(made.state())
    assert fresh.state() == made.state()
    assert (fresh.nodes, fresh.groups, fresh.rows) == (["", "b"], ["", "pp1"], {0: 0, 3: 1})
    assert fresh.rows_of_node("b") == [1]
