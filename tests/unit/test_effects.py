import numpy as np
import pytest

from eacgm.streams.baseline import DRIFT_WINDOWS, Baseline
from eacgm.streams.effects import Effects

FEATURES = ["step_seconds", "compute_seconds", "run_queue_wait_seconds", "gpu_utilization_ratio"]
GROUPS = [np.arange(4)]


def readings(compute=(0.1, 0.1, 0.1, 0.1), step=0.2, utilization=0.5):
    values = np.full((4, len(FEATURES)), np.nan)
    values[:, 0], values[:, 1], values[:, 3] = step, compute, utilization
    return values


def made(past, now, windows=30):
    """Return the effects of ``now`` in a job whose past was ``past`` for so many windows."""
    baseline = Baseline()
    rows = baseline.align([0, 1, 2, 3], FEATURES)
    for _ in range(windows):
        residuals = baseline.observe(rows, past, GROUPS)
        baseline.learn(rows, residuals, np.ones(4), job_healthy=True)
    recent = [baseline.observe(rows, now, GROUPS).scaled for _ in range(3)]
    return Effects(recent, baseline, rows, GROUPS, window_seconds=1.0)


def test_a_rank_s_excess_is_told_in_the_feature_s_unit():
    effects = made(readings(), readings(compute=(0.1, 0.1, 0.3, 0.1)))
    assert effects.level("compute_seconds") == pytest.approx([0.1, 0.1, 0.3, 0.1])
    assert effects.excess("compute_seconds") == pytest.approx([0.0, 0.0, 0.2, 0.0], abs=1e-9)
    assert np.argmax(effects.z("compute_seconds")) == 2
    assert effects.z("compute_seconds")[2] > 10


def test_a_habit_is_expected_and_not_without_it():
    slow = readings(compute=(0.1, 0.1, 0.3, 0.1))
    effects = made(slow, slow)
    assert effects.excess("compute_seconds") == pytest.approx([0.0] * 4, abs=1e-6)
    assert effects.excess("compute_seconds", habit=False)[2] == pytest.approx(0.2)


def test_the_median_of_the_windows_counts_not_a_spike():
    effects = made(readings(), readings())
    spiked = effects._recent[0].copy()
    spiked[2, 1] += 5.0
    again = Effects([spiked, *effects._recent[1:]], effects._baseline, effects._rows, GROUPS, 1.0)
    assert again.level("compute_seconds") == pytest.approx(effects.level("compute_seconds"))


def test_a_log_feature_changes_by_a_ratio_and_a_linear_one_by_a_difference():
    effects = made(readings(step=0.2, utilization=0.5), readings(step=0.3, utilization=0.8))
    assert effects.change("step_seconds") == pytest.approx(1.5)
    assert effects.change("gpu_utilization_ratio") == pytest.approx(0.3)
    assert effects.past("step_seconds") == pytest.approx(0.2)
    assert effects.change_z("step_seconds") > 10


def test_without_a_past_there_is_no_change():
    effects = made(readings(), readings(), windows=0)
    assert effects.change("step_seconds") is None
    assert effects.change_z("step_seconds") is None
    assert effects.past("step_seconds") is None


def test_what_nobody_tells_is_none():
    effects = made(readings(), readings())
    for name in ("run_queue_wait_seconds", "no_such_feature"):
        assert effects.level(name) is None
        assert effects.excess(name) is None
        assert effects.z(name) is None
        assert effects.drift(name) is None
        assert effects.change(name) is None
    assert effects.per_step(None) is None


def test_seconds_of_a_window_become_seconds_of_a_step():
    effects = made(readings(step=0.25), readings(step=0.25))
    assert effects.steps_per_window() == pytest.approx([4.0] * 4)
    assert effects.per_step(np.array([2.0, 0.0, 4.0, 1.0])) == pytest.approx([0.5, 0.0, 1.0, 0.25])


def test_a_faint_lasting_effect_weighs_more_than_one_window_of_it():
    faint = readings(compute=(0.1, 0.1, 0.105, 0.1))
    baseline = Baseline()
    rows = baseline.align([0, 1, 2, 3], FEATURES)
    for _ in range(30):
        baseline.learn(rows, baseline.observe(rows, readings(), GROUPS), np.ones(4), job_healthy=True)
    for _ in range(int(4 * DRIFT_WINDOWS)):
        recent = baseline.observe(rows, faint, GROUPS).scaled
    effects = Effects([recent], baseline, rows, GROUPS, 1.0)
    size, spreads = effects.drift("compute_seconds")
    assert size[2] == pytest.approx(np.log(1.05), rel=0.05)
    assert spreads[2] > 2 * effects.z("compute_seconds")[2]
    assert abs(spreads[0]) < 1e-6
