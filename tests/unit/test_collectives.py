import numpy as np
import pytest

from eacgm.events import CollectivesEvent
from eacgm.streams import collectives
from eacgm.streams.collectives import MOST_COMMUNICATORS, CollectiveMatch

SECOND = 1_000_000_000
MS = 1_000_000


def calls(rank, starts_ms, ends_ms, *, first=0, node="a", error_ns=0, operation="allreduce", communicator="c"):
    n = len(starts_ms)
    return CollectivesEvent(
        job="j",
        rank=rank,
        node=node,
        start_ns=0,
        end_ns=SECOND,
        clock_error_ns=error_ns,
        communicator=[communicator] * n,
        operation=[operation] * n,
        call_sequence=np.arange(first, first + n),
        payload_bytes=np.full(n, -1),
        call_start_ns=(np.array(starts_ms) * MS).astype(np.int64),
        call_end_ns=(np.array(ends_ms) * MS).astype(np.int64),
        return_code=np.zeros(n, dtype=np.int64),
    )


def matcher(n_ranks, match_windows=5):
    match = CollectiveMatch(match_windows)
    match.resize(np.empty(0, dtype=np.int64), n_ranks)
    return match


def lag(match, *events):
    return match.match(events, np.array([event.rank for event in events]))[0]


ENDS = np.array([100, 220, 340, 460])


def test_the_lag_is_behind_the_first_arriver():
    match = matcher(3)
    found = lag(match, calls(0, ENDS - 30, ENDS), calls(1, ENDS - 20, ENDS), calls(2, ENDS - 5, ENDS))
    assert found == pytest.approx([0.0, 0.010, 0.025])


def test_a_lag_within_the_clock_errors_is_none():
    match = matcher(3)
    found = lag(
        match,
        calls(0, ENDS - 30, ENDS, error_ns=8 * MS),
        calls(1, ENDS - 20, ENDS, node="b", error_ns=8 * MS),
        calls(2, ENDS - 5, ENDS, node="b", error_ns=8 * MS),
    )
    assert found == pytest.approx([0.0, 0.0, 0.025])


def test_between_nodes_of_unknown_clock_error_nothing_is_told():
    match = matcher(2)
    found = lag(match, calls(0, ENDS - 30, ENDS), calls(1, ENDS - 20, ENDS, node="b", error_ns=None))
    assert found[0] == 0.0
    assert np.isnan(found[1])


def test_ranks_counted_from_different_first_sights_are_aligned():
    match = matcher(2)
    found = lag(match, calls(0, ENDS - 30, ENDS), calls(1, ENDS[1:] - 10, ENDS[1:]))
    assert found == pytest.approx([0.0, 0.020])
    assert match.positions().tolist() == [3, 3]


def test_collectives_are_matched_across_window_borders():
    match = matcher(2)
    lag(match, calls(0, ENDS - 30, ENDS), calls(1, ENDS[:3] - 10, ENDS[:3]))
    later = ENDS + 480
    found = lag(match, calls(0, later - 30, later, first=4), calls(1, [450, *(later - 10)], [460, *later], first=3))
    # the call that began at 430 on rank 0 and at 450 on rank 1 counts with the later four
    assert found[1] == pytest.approx(0.020)


def test_a_rank_that_never_enters_is_waited_for_only_so_long():
    match = matcher(3, match_windows=2)
    both = [calls(0, ENDS - 30, ENDS), calls(1, ENDS - 30, ENDS), calls(2, ENDS - 30, ENDS)]
    lag(match, *both)
    later = ENDS + 480
    assert np.isnan(lag(match, calls(0, later - 30, later, first=4), calls(1, later - 20, later, first=4))).all()
    lag(match)
    found = lag(match)
    assert found[:2] == pytest.approx([0.0, 0.010])
    assert np.isnan(found[2])


def test_an_alignment_that_turns_out_wrong_is_mended():
    match = matcher(2)
    lag(match, calls(0, ENDS - 30, ENDS), calls(1, ENDS - 10, ENDS))
    found = None
    for window in range(1, 8):
        # from here on rank 1's producer has lost one call: its count is one behind
        ends = np.arange(10) * 120 + window * 1200
        found = lag(
            match,
            calls(0, ends - 30, ends, first=window * 10),
            calls(1, ends - 10, ends, first=window * 10 - 1),
        )
    assert found == pytest.approx([0.0, 0.020])


def test_point_to_point_calls_have_no_lag():
    match = matcher(2)
    sends = [calls(r, ENDS - 30 + 20 * r, ENDS, operation="send") for r in (0, 1)]
    assert np.isnan(lag(match, *sends)).all()


def test_rows_keep_their_state_when_a_rank_appears_between_them():
    match = matcher(2)
    lag(match, calls(0, ENDS - 30, ENDS), calls(1, ENDS[1:] - 10, ENDS[1:]))
    match.resize(np.array([0, 2]), 3)
    assert match.positions()[[0, 2]].tolist() == [3, 3]
    assert np.isnan(match.positions()[1])


def test_state_is_all_there_is():
    one, other = matcher(2), matcher(2)
    lag(one, calls(0, ENDS - 30, ENDS), calls(1, ENDS[1:3] - 10, ENDS[1:3]))
    other.load(one.state())
    later = ENDS + 480
    events = [calls(0, later - 30, later, first=4), calls(1, [440, *(later - 10)], [460, *later], first=2)]
    assert np.array_equal(lag(one, *events), lag(other, *events), equal_nan=True)
    assert np.array_equal(one.positions(), other.positions())


def test_more_communicators_in_one_window_than_are_remembered_are_refused_and_counted():
    match = matcher(2)
    known = [calls(rank, ENDS - 10 * rank, ENDS, communicator="known") for rank in (0, 1)]
    lag(match, *known)
    flood = calls(0, [0] * 5000, [1] * 5000)
    flood.communicator = [f"flood{number}" for number in range(5000)]
    lag(match, known[0], flood, known[1])
    assert match.refused == 5000 + 1 - MOST_COMMUNICATORS
    # the one that goes on was not forgotten for it
    after = [calls(rank, 1000 + ENDS - 10 * rank, 1000 + ENDS, first=8, communicator="known") for rank in (0, 1)]
    assert lag(match, *after) == pytest.approx([0.010, 0.0])


def test_ever_new_operations_do_not_grow_the_memory(monkeypatch):
    monkeypatch.setattr(collectives, "MOST_NAMES", 10)
    match = matcher(1)
    for number in range(50):
        lag(match, calls(0, ENDS - 10, ENDS, operation=f"operation {number}", first=4 * number))
    assert len(match.state()["names"]) == 10
