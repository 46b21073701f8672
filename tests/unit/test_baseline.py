import numpy as np
import pytest

from eacgm.streams.baseline import LOG_SPREAD_FLOOR, Baseline, group_medians, middle

EVERYONE = [np.arange(4)]


def observe(baseline, values, features=("compute_seconds",), ranks=(0, 1, 2, 3), groups=EVERYONE):
    rows = baseline.align(list(ranks), list(features))
    return rows, baseline.observe(rows, np.asarray(values, dtype=float), groups)


def test_a_habit_is_no_effect_and_its_break_is():
    baseline, habit = Baseline(), np.array([[1.0], [1.0], [1.2], [1.0]])
    for _ in range(50):
        rows, residuals = observe(baseline, habit)
        baseline.learn(rows, residuals, np.ones(4), True)
    _, residuals = observe(baseline, habit)
    assert np.abs(residuals.peer_z).max() < 1e-6
    _, residuals = observe(baseline, habit * [[1.0], [1.0], [1.1], [1.0]])
    assert residuals.peer_z[2, 0] == pytest.approx(np.log(1.1) / LOG_SPREAD_FLOOR, rel=1e-6)


def test_two_ranks_cannot_vote_and_groups_are_not_mixed():
    scaled = np.array([[1.0], [2.0], [10.0], [11.0], [12.0]])
    medians = group_medians(scaled, [np.array([0, 1]), np.array([2, 3, 4])])
    assert np.isnan(medians[:2]).all()
    assert medians[2:].ravel().tolist() == [11.0, 11.0, 11.0]


def test_a_lone_spike_hardly_widens_the_spread():
    baseline = Baseline()
    random = np.random.default_rng(0)
    for step in range(200):
        values = np.exp(random.normal(0, 0.03, (4, 1)))
        if step == 150:
            values[2] *= 50.0
        rows, residuals = observe(baseline, values)
        baseline.learn(rows, residuals, np.ones(4), True)
    spread = baseline.rank_spread(rows)
    assert spread[2, 0] < 1.3 * np.median(spread)


def test_ranks_left_out_of_learning_keep_their_habit():
    baseline = Baseline()
    for _ in range(30):
        rows, residuals = observe(baseline, np.ones((4, 1)))
        baseline.learn(rows, residuals, np.ones(4), True)
    for _ in range(30):
        rows, residuals = observe(baseline, [[1.0], [2.0], [1.0], [1.0]])
        baseline.learn(rows, residuals, np.array([1, 0, 1, 1]), True)
    assert baseline.rank_mean[1, 0] == 0.0


def test_a_new_column_moves_no_old_one():
    baseline = Baseline()
    rows, residuals = observe(baseline, np.full((4, 1), 2.0), ["step_seconds"])
    baseline.learn(rows, residuals, np.ones(4), True)
    before = baseline.job_mean[0]
    baseline.align([0, 1, 2, 3], ["compute_seconds", "my_metric", "step_seconds"])
    assert baseline.job_mean.tolist() == [0.0, 0.0, before]


def test_a_new_rank_gets_a_row_and_old_ones_keep_theirs():
    baseline = Baseline()
    baseline.align([1, 3], ["step_seconds"])
    assert baseline.align([0, 1, 3], ["step_seconds"]).tolist() == [2, 0, 1]


def test_scale_and_back():
    baseline = Baseline()
    baseline.align([0], ["step_seconds", "gpu_utilization_ratio"])
    values = np.array([[0.5, 0.7]])
    assert baseline.unscale(baseline.scale(values)) == pytest.approx(values)


def test_middle_of_nothing_is_unknown():
    assert np.isnan(middle(np.array([np.nan, np.nan])))
