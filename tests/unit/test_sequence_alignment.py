import numpy as np
import pytest

from eacgm.streams.sequence_alignment import agreeing, offset

MS = 1_000_000


def steps(n_steps, per_step, period_ms=120, burst_ms=2, jitter_ms=0.3, seed=0):
    """End times (ns) of bursts of collectives, as a step of data-parallel training gives them."""
    random = np.random.default_rng(seed)
    ends = (np.arange(n_steps)[:, None] * period_ms + np.arange(per_step) * burst_ms) * MS
    return (ends.ravel() + random.normal(0, jitter_ms, n_steps * per_step) * MS).astype(np.int64)


@pytest.mark.parametrize("per_step", [1, 3, 10])
@pytest.mark.parametrize("missed", [1, 2, 7])
def test_a_rank_that_was_seen_later_gets_the_right_constant(per_step, missed):
    reference, mine = steps(12, per_step, seed=1), steps(12, per_step, seed=2)[missed:]
    n = np.arange(reference.size)
    assert offset(np.arange(mine.size), mine, n, reference) == missed


def test_equal_counts_stay_equal_although_ends_differ_by_much():
    # one rank's calls end 30 ms later than the other's, every time
    reference, mine = steps(8, 1, seed=1), steps(8, 1, seed=2) + 30 * MS
    n = np.arange(8)
    assert offset(n, mine, n, reference) == 0


def test_without_common_calls_nothing_is_told():
    one = np.array([1_000])
    assert offset(np.array([0]), one, np.array([0]), one) is None
    none = np.empty(0, dtype=np.int64)
    assert offset(none, none, np.arange(3), np.arange(3)) is None


def test_a_clock_too_bad_to_tell_calls_apart_changes_nothing():
    reference, mine = steps(8, 1, seed=1), steps(8, 1, seed=2)[1:]
    assert offset(np.arange(7), mine, np.arange(8), reference, error_ns=1_000 * MS) == 0


def test_ranks_that_agree_as_they_are_are_told_at_once():
    reference = steps(8, 3, seed=1)
    n = np.arange(24)
    row = np.repeat([0, 1, 2, 3], [24, 24, 20, 1])
    sequence = np.concatenate((n, n, n[:20], n[:1]))
    ends = np.concatenate((reference, steps(8, 3, seed=2), steps(8, 3, seed=3)[4:], reference[:1]))
    # rank 2 was seen four calls later, rank 3 has too few to tell
    assert agreeing(row, sequence, ends, n, reference, 4).tolist() == [True, True, False, False]
