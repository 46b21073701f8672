import numpy as np
import pytest

from eacgm.streams.collective_table import CollectiveTable
from eacgm.streams.steps import Steps

SECOND = 1_000_000_000


def clock(n_ranks=1):
    steps = Steps()
    steps.resize(np.empty(0, dtype=np.int64), n_ranks)
    return steps


def table(ends_s, sequence):
    n = len(ends_s)
    zero = np.zeros(n, dtype=np.int64)
    ends = (np.array(ends_s) * SECOND).astype(np.int64)
    return CollectiveTable.of(
        row=zero,
        channel=zero,
        operation=zero,
        sequence=np.array(sequence, dtype=np.int64),
        start_ns=ends,
        end_ns=ends,
        payload_bytes=zero,
        return_code=zero,
        node=zero,
        error_ns=zero,
        window=zero,
    )


def observe(steps, count, ends_s=(), sequence=()):
    return steps.observe(np.array([float(count)]), np.array([1.0]), table(ends_s, sequence), SECOND)[0]


def test_without_collectives_steps_are_counted():
    steps = clock()
    assert observe(steps, 4) == 0.25
    assert np.isnan(observe(steps, 0))
    assert observe(steps, 1) == 2.0


def test_without_visible_steps_the_collectives_are_the_heartbeat():
    steps = clock()
    observe(steps, 0, [0.5, 1.0], [0, 1])
    assert observe(steps, 0, [1.5, 2.0], [2, 3]) == pytest.approx(0.5)
    assert steps.collectives_per_step()[0] == 1


def test_the_same_place_of_two_steps_is_compared():
    # two collectives a step, 10 ms apart, a step every 400 ms; a window may end between the two
    steps = clock()
    ends = np.sort(np.concatenate((np.arange(1, 40) * 0.4, np.arange(1, 40) * 0.4 + 0.01)))
    seen = []
    for second in range(12):
        inside = np.flatnonzero((ends > second) & (ends <= second + 1))
        begun = np.arange(1, 40) * 0.4
        seen.append(observe(steps, np.sum((begun > second) & (begun <= second + 1)), ends[inside], inside))
    assert seen[6:] == pytest.approx([0.4] * 6)


def test_a_pause_between_steps_is_not_part_of_a_step():
    steps = clock()
    for second in range(6):
        observe(steps, 2, [second + 0.5, second + 1.0], [2 * second, 2 * second + 1])
    for _ in range(20):
        assert np.isnan(observe(steps, 0))
    assert observe(steps, 2, [26.5, 27.0], [12, 13]) == pytest.approx(0.5)


def test_collectives_of_an_evaluation_are_not_taken_for_those_of_a_step():
    steps = clock()
    for second in range(8):
        observe(steps, 2, [second + 0.5, second + 1.0], [2 * second, 2 * second + 1])
    for second in range(8, 28):
        observe(steps, 0, [second + 0.5], [second + 8])
    observe(steps, 2, [28.5, 29.0], [36, 37])
    assert steps.collectives_per_step()[0] == 1


def test_too_few_steps_tell_nothing_of_their_collectives():
    steps = clock()
    observe(steps, 1, [0.5, 1.0], [0, 1])
    assert np.isnan(steps.collectives_per_step()[0])
