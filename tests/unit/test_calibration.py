import numpy as np
import pytest

from eacgm.config import DetectConfig
from eacgm.streams.calibration import LEAST_SCORES, Calibration, Tail, fit_tail, p_threshold


def calibrated(scores):
    calibration = Calibration()
    calibration.add(scores)
    return calibration


def test_too_few_scores_give_no_p_value():
    calibration = calibrated(np.arange(LEAST_SCORES - 1.0))
    assert np.isnan(calibration.p_values(np.array([1.0]))).all()
    assert calibration.fence() == np.inf
    assert calibration.threshold(0.5) == np.inf


def test_p_values_within_the_range_are_conformal():
    calibration = calibrated(np.arange(99.0))
    np.testing.assert_allclose(calibration.p_values(np.array([-1.0, 49.0, 98.0])), [1.0, 0.51, 0.02])


def test_p_values_fall_without_a_jump_beyond_the_highest_score():
    calibration = calibrated(np.random.default_rng(0).normal(size=500))
    highest = calibration.state()["sorted"][-1]
    p_values = calibration.p_values(highest + np.array([1e-9, 0.5, 1.0, 5.0, 1e6]))
    assert p_values[0] == pytest.approx(1.0 / 501.0, rel=1e-3)
    assert (np.diff(p_values) < 0.0).all()
    assert p_values[-1] > 0.0


@pytest.mark.parametrize("shape", [0.1, 0.5, 0.9])
def test_tail_fit_recovers_a_generalised_pareto(shape):
    uniform = np.random.default_rng(1).random(20_000)
    scores = 5.0 + 2.0 * (uniform**-shape - 1.0) / shape
    tail = fit_tail(scores, 5.0)
    assert tail.shape == pytest.approx(shape, abs=0.03)
    assert tail.scale == pytest.approx(2.0, rel=0.05)


def test_tail_of_equal_scores_is_finite():
    p_values = calibrated(np.ones(100)).p_values(np.array([0.0, 1.0, 1.0 + 1e-9, 2.0]))
    assert np.isfinite(p_values).all()
    assert (np.diff(p_values) <= 0.0).all()
    assert Tail(0.0, 1.0, 0.0).survival(np.array([2.0]))[0] == pytest.approx(np.exp(-2.0))


@pytest.mark.parametrize("draw", ["chisquare", "normal", "exponential"])
def test_promised_rate_is_kept_on_clean_scores(draw):
    rng = np.random.default_rng(2)
    sample = {
        "chisquare": lambda n: rng.chisquare(16, n),
        "normal": lambda n: rng.normal(size=n),
        "exponential": lambda n: rng.exponential(size=n),
    }[draw]
    rates = []
    for _ in range(40):
        calibration = calibrated(sample(600))
        rates.append((calibration.p_values(sample(5000)) <= 1e-3).mean())
    assert np.mean(rates) <= 1e-3


def test_threshold_is_where_the_p_value_crosses():
    calibration = calibrated(np.random.default_rng(3).chisquare(16, 1000))
    for wanted in (0.05, 1e-3, 1e-6):
        at = calibration.threshold(wanted)
        below, above = calibration.p_values(np.array([at - 1e-6, at + 1e-6]))
        assert above <= wanted < below


def test_upward_drift_makes_p_values_larger_and_a_downward_one_leaves_them():
    rng = np.random.default_rng(4)
    up, down = calibrated(rng.normal(size=1000)), calibrated(rng.normal(size=1000))
    before = up.p_values(np.array([4.0]))
    for _ in range(20):
        up.add(rng.normal(size=8) + 2.0)
        down.add(rng.normal(size=8) - 2.0)
    assert up.drift > 2.0
    assert down.drift == 1.0
    assert up.p_values(np.array([4.0])) > 2.0 * before


def test_reanchored_scores_replace_the_old_ones():
    calibration = calibrated(np.full(500, 100.0))
    calibration.reanchor(np.random.default_rng(5).normal(size=200))
    assert len(calibration) == 200
    assert calibration.p_values(np.array([50.0]))[0] < 1e-3


def test_scores_that_are_not_finite_are_left_out():
    calibration = calibrated(np.array([np.nan, np.inf, 1.0]))
    assert len(calibration) == 1


@pytest.mark.parametrize("cut", [0, 5, 19, 20, 60, 150])
def test_snapshot_and_restore_are_invisible(cut):
    rng = np.random.default_rng(6)
    parts, probe = rng.chisquare(8, (200, 7)), np.linspace(0.0, 60.0, 50)
    straight, broken = Calibration(300), Calibration(300)
    for index, part in enumerate(parts):
        if index == cut:
            successor = Calibration(300)
            successor.load(broken.state())
            broken = successor
        straight.add(part)
        broken.add(part)
        np.testing.assert_array_equal(straight.p_values(probe), broken.p_values(probe))


def test_threshold_p_value_keeps_the_promise_on_independent_windows():
    rng = np.random.default_rng(7)
    detect = DetectConfig(false_alarms_per_day=400.0, persistence_windows=2, persistence_of=4)
    p_value = p_threshold(detect, rows_per_second=1.0)
    unusual = rng.random((50, 86_400)) < p_value
    recent = sum(np.roll(unusual, lag, axis=1) for lag in range(4)) >= 2
    starts_per_day = (recent[:, 1:] & ~recent[:, :-1]).sum() / 50
    assert 0.7 * 400.0 < starts_per_day <= 400.0


def test_threshold_p_value_falls_with_recurrence_and_with_rate():
    detect = DetectConfig()
    base = p_threshold(detect, 8.0)
    assert p_threshold(detect, 80.0) < base
    assert p_threshold(detect, 8.0, recurrence=0.3) < base
    assert p_threshold(detect, 8.0, recurrence=1e-9) == base
