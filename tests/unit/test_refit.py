import numpy as np
import pytest

from eacgm.config import MixtureConfig
from eacgm.errors import InputError
from eacgm.streams.mixture import Mixture
from eacgm.streams.refit import LAG_WINDOWS, RefitSchedule, refit
from eacgm.streams.reservoir import Reservoir

CONFIG = MixtureConfig(max_components=4, reservoir_rows=500, refit_every_windows=40)


def modes(n, width=3, seed=0):
    rng = np.random.default_rng(seed)
    centres = np.array([[-2.0] * width, [2.0] * width])
    return centres[rng.integers(2, size=n)] + 0.5 * rng.normal(size=(n, width))


def test_refit_finds_two_modes_that_one_component_blurred():
    rows = modes(800)
    mixture = Mixture(3, CONFIG)
    mixture.learn(rows)
    fitted = refit(rows, mixture)
    assert fitted.n_components == 2
    between = np.zeros((1, 3))
    assert mixture.score(between)[0] < np.median(mixture.score(rows))
    assert fitted.score(between)[0] > fitted.score(rows).max()
    assert fitted.n_seen == mixture.n_seen


def test_refit_takes_one_component_where_one_is_enough():
    rows = np.random.default_rng(1).normal(size=(600, 4))
    mixture = Mixture(4, CONFIG)
    mixture.learn(rows)
    assert refit(rows, mixture).n_components == 1


def test_refit_keeps_variances_of_columns_with_unknown_cells():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(2000, 2)) @ np.array([[1.0, 0.9], [0.0, 0.44]])
    rows[rng.random(rows.shape) < 0.3] = np.nan
    mixture = Mixture(2, CONFIG)
    for at in range(0, 2000, 20):
        mixture.learn(rows[at : at + 20])
    covariance = refit(rows, mixture).gaussians.covariances[0]
    np.testing.assert_allclose(np.diag(covariance), 1.0, atol=0.12)
    assert covariance[0, 1] == pytest.approx(0.9, abs=0.12)


def test_refit_is_deterministic_and_leaves_mostly_unknown_columns_alone():
    rows = np.hstack((modes(600), np.full((600, 1), np.nan)))
    rows[::10, 3] = 5.0
    mixture = Mixture(4, CONFIG)
    mixture.learn(rows)
    one, other = refit(rows, mixture), refit(rows, mixture)
    np.testing.assert_array_equal(one.score(rows), other.score(rows))
    assert (one.gaussians.covariances[:, 3, :3] == 0.0).all()
    assert one.gaussians.means[:, 3] == pytest.approx(5.0)


def run(schedule, windows, mixture, reservoir, log):
    for window in windows:
        rows = modes(8, seed=1000 + window)
        swapped = schedule.step(window, mixture, reservoir)
        if swapped is not None:
            mixture = swapped
        log.append((window, swapped is not None, mixture.score(rows)))
        mixture.learn(rows)
        reservoir.offer(rows)
    return mixture


def test_refit_starts_and_swaps_at_set_windows():
    log = []
    schedule = RefitSchedule(CONFIG, first_window=20)
    run(schedule, range(80), Mixture(3, CONFIG), Reservoir(3, 500), log)
    assert [window for window, swapped, _ in log if swapped] == [20 + LAG_WINDOWS, 60 + LAG_WINDOWS]
    assert schedule.n_refits == 2


@pytest.mark.parametrize("cut", [10, 20, 21, 25, 29, 30, 31])
def test_snapshot_in_mid_refit_is_invisible(cut):
    straight, broken = [], []
    run(RefitSchedule(CONFIG, first_window=20), range(50), Mixture(3, CONFIG), Reservoir(3, 500), straight)
    first, reservoir = RefitSchedule(CONFIG, first_window=20), Reservoir(3, 500)
    mixture = run(first, range(cut), Mixture(3, CONFIG), reservoir, broken)
    parts = (RefitSchedule(CONFIG, first_window=20), Mixture(3, CONFIG), Reservoir(3, 500))
    for part, state in zip(parts, (first.state(), mixture.state(), reservoir.state()), strict=True):
        part.load(state)
    run(parts[0], range(cut, 50), parts[1], parts[2], broken)
    for (_, left_swap, left), (_, right_swap, right) in zip(straight, broken, strict=True):
        assert left_swap == right_swap
        np.testing.assert_array_equal(left, right)


def test_columns_that_came_during_a_refit_are_not_lost():
    schedule = RefitSchedule(CONFIG, first_window=20)
    mixture, reservoir = Mixture(3, CONFIG), Reservoir(3, 500)
    mixture = run(schedule, range(25), mixture, reservoir, [])
    mixture.extend(2)
    swapped = schedule.step(20 + LAG_WINDOWS, mixture, reservoir)
    assert swapped is not None
    assert swapped.n_features == 5


def test_failure_in_the_background_is_raised_where_the_result_is_awaited():
    schedule, mixture = RefitSchedule(CONFIG, first_window=20), Mixture(3, CONFIG)
    mixture.learn(modes(100))
    reservoir = Reservoir(2, 500)
    reservoir.offer(modes(100, width=2))
    assert schedule.step(20, mixture, reservoir) is None
    with pytest.raises(InputError, match="expected"):
        schedule.step(20 + LAG_WINDOWS, mixture, reservoir)


def test_hastened_schedule_refits_at_once():
    schedule = RefitSchedule(CONFIG, first_window=40)
    reservoir, mixture = Reservoir(3, 500), Mixture(3, CONFIG)
    rows = modes(100)
    mixture.learn(rows)
    reservoir.offer(rows)
    schedule.hasten(5)
    assert schedule.step(5, mixture, reservoir) is None
    assert schedule.step(5 + LAG_WINDOWS, mixture, reservoir) is not None
