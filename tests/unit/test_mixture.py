"""The mixture against scikit-learn's densities, and against what it must do on odd input."""

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from eacgm.config import MixtureConfig
from eacgm.errors import InputError
from eacgm.streams.gaussians import Gaussians
from eacgm.streams.mixture import CLIP, Mixture


def learnt(rows, batch=64, config=None):
    mixture = Mixture(rows.shape[1], config)
    for start in range(0, len(rows), batch):
        mixture.learn(rows[start : start + batch])
    return mixture


def scikit(gaussians):
    reference = GaussianMixture(len(gaussians.weights))
    reference.weights_, reference.means_ = gaussians.weights, gaussians.means
    reference.covariances_ = gaussians.covariances
    reference.precisions_cholesky_ = np.linalg.cholesky(np.linalg.inv(gaussians.covariances))
    return reference


def random_gaussians(rng, n_components, width):
    factors = rng.normal(size=(n_components, width, 2 * width))
    covariances = factors @ factors.transpose(0, 2, 1) / (2 * width) + 0.05 * np.eye(width)
    weights = rng.dirichlet(np.ones(n_components))
    return Gaussians(weights, 2.0 * rng.normal(size=(n_components, width)), covariances)


@pytest.mark.parametrize(("n_components", "width"), [(1, 1), (2, 3), (8, 32), (3, 128)])
def test_scores_equal_scikit_learns_log_density(n_components, width):
    rng = np.random.default_rng(width)
    gaussians = random_gaussians(rng, n_components, width)
    rows = 3.0 * rng.normal(size=(200, width))
    reference = scikit(gaussians)
    now = gaussians.densities(rows, None)
    np.testing.assert_allclose(-now.scores, reference.score_samples(rows), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(now.responsibilities, reference.predict_proba(rows), rtol=1e-9, atol=1e-9)


def test_a_learnt_mixture_scores_like_scikit_learn_with_the_same_parameters():
    rng = np.random.default_rng(1)
    mixture = learnt(rng.normal(size=(3000, 5)) @ rng.normal(size=(5, 5)))
    rows = rng.normal(size=(100, 5))
    np.testing.assert_allclose(-mixture.score(rows), scikit(mixture.gaussians).score_samples(rows), rtol=1e-9)


def test_one_component_learns_mean_and_covariance():
    rng = np.random.default_rng(2)
    factor = rng.normal(size=(4, 4))
    rows = rng.normal(size=(8_000, 4)) @ factor + np.array([3.0, -2.0, 0.0, 1.0])
    gaussians = learnt(rows, batch=8).gaussians
    truth = factor.T @ factor
    np.testing.assert_allclose(gaussians.means[0], rows.mean(axis=0), atol=0.08)
    np.testing.assert_allclose(gaussians.covariances[0], truth, atol=0.06 * np.abs(truth).max())


def test_unknown_cell_of_a_single_gaussian_scores_its_exact_expectation():
    rng = np.random.default_rng(3)
    gaussians = random_gaussians(rng, 1, 3)
    row = np.array([[1.0, -0.5, 0.0]])
    known = np.array([[True, True, False]])
    given = gaussians.conditional(np.array([0, 1]), np.array([2]))
    mean = gaussians.means[0, 2] + (row[0, :2] - gaussians.means[0, :2]) @ given.gain[0, 0]
    draws = np.repeat(row, 400_000, axis=0)
    draws[:, 2] = mean + np.sqrt(given.covariance[0, 0, 0]) * rng.standard_normal(len(draws))
    expected = gaussians.densities(draws, None).scores.mean()
    assert gaussians.densities(row, known).scores[0] == pytest.approx(expected, abs=0.01)


def test_unknown_cell_of_a_correlated_pair_is_no_anomaly():
    rng = np.random.default_rng(4)
    common = rng.normal(size=5000)
    mixture = learnt(np.stack((common, common + 0.05 * rng.normal(size=5000)), axis=1))
    half, broken = mixture.score(np.array([[2.0, np.nan], [2.0, 0.0]]))
    assert half < mixture.score(np.array([[2.0, 2.0]]))[0] + 1.0
    assert broken > half + 20.0


def test_learning_with_unknown_cells_recovers_the_covariance():
    rng = np.random.default_rng(5)
    factor = np.array([[1.0, 0.8, 0.0], [0.0, 0.6, 0.3], [0.0, 0.0, 0.9]])
    rows = rng.normal(size=(16_000, 3)) @ factor
    truth = factor.T @ factor
    gappy = np.where(rng.random(rows.shape) < 0.3, np.nan, rows)
    np.testing.assert_allclose(learnt(gappy, 32).gaussians.covariances[0], truth, atol=0.1)


def test_first_rows_are_neutral_and_the_next_ones_sane():
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(8, 6)) + 50.0
    mixture = Mixture(6)
    before = mixture.score(rows)
    assert np.ptp(before) == 0.0
    mixture.learn(rows)
    usual = mixture.score(rng.normal(size=(50, 6)) + 50.0)
    strange = mixture.score(np.full((1, 6), 70.0))
    assert strange[0] > usual.max() + 10.0


def test_row_without_known_cells_scores_like_an_ordinary_row():
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(4000, 4))
    mixture = learnt(rows)
    assert mixture.score(np.full((1, 4), np.nan))[0] == pytest.approx(mixture.score(rows).mean(), abs=0.1)


def test_extended_column_is_neutral_then_learnt_from_its_own_rows():
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(4000, 2))
    mixture = learnt(rows)
    mixture.extend(1)
    wide = np.hstack((rows, 30.0 + 0.1 * rng.normal(size=(4000, 1))))
    fresh = mixture.score(wide[:500])
    assert np.corrcoef(fresh, mixture.score(np.hstack((rows[:500], np.full((500, 1), -9.0)))))[0, 1] > 0.999
    for start in range(0, 400, 8):
        mixture.learn(wide[start : start + 8])
    usual, strange = mixture.score(np.array([[0.0, 0.0, 30.0], [0.0, 0.0, 34.0]]))
    assert strange > usual + 10.0


def test_seldom_known_column_stays_independent_and_an_often_known_one_ripens():
    rng = np.random.default_rng(9)
    common = rng.normal(size=6000)
    rows = np.stack((common, common + 0.1 * rng.normal(size=6000)), axis=1)
    seldom = rows.copy()
    seldom[rng.random(6000) < 0.8, 1] = np.nan
    seldom[0, 1], seldom[:64, 1][1:] = np.nan, np.nan
    assert learnt(seldom).gaussians.covariances[0, 0, 1] == 0.0
    late = rows.copy()
    late[:500, 1] = np.nan
    assert learnt(late).gaussians.covariances[0, 0, 1] > 0.5


@pytest.mark.parametrize("value", [1e300, np.inf, -np.inf, 1e308, -1e18])
def test_extreme_values_are_clipped_and_told(value):
    rng = np.random.default_rng(10)
    mixture = learnt(rng.normal(size=(500, 3)))
    rows = np.array([[0.0, value, 0.0]])
    clipped = np.array([[0.0, np.copysign(CLIP, value), 0.0]])
    assert np.isfinite(mixture.score(rows)).all()
    np.testing.assert_array_equal(mixture.score(rows), mixture.score(clipped))
    mixture.learn(rows)
    assert mixture.n_clipped == 1
    assert np.isfinite(mixture.score(rng.normal(size=(5, 3)))).all()


def test_one_wild_row_hardly_moves_the_model():
    rng = np.random.default_rng(11)
    rows = rng.normal(size=(2000, 3))
    mixture = learnt(rows)
    before = mixture.score(rows)
    mixture.learn(np.full((1, 3), 1e4))
    assert np.abs(mixture.score(rows) - before).max() < 0.2


def test_constant_feature_alarms_when_it_moves():
    rng = np.random.default_rng(12)
    rows = np.hstack((rng.normal(size=(2000, 2)), np.full((2000, 1), 4.0)))
    mixture = learnt(rows)
    still, moved = mixture.score(np.array([[0.0, 0.0, 4.0], [0.0, 0.0, 5.0]]))
    assert moved > still + 20.0


def test_contributions_name_the_feature_that_breaks_the_correlation():
    rng = np.random.default_rng(13)
    common = rng.normal(size=(5000, 1))
    mixture = learnt(common + 0.2 * rng.normal(size=(5000, 5)))
    shares = mixture.contributions(np.array([[0.0, 0.0, 2.0, 0.0, 0.0], [np.nan, 0.0, 0.0, 0.0, 2.0]]))
    assert shares.argmax(axis=1).tolist() == [2, 4]
    assert shares.max(axis=1).min() > 0.6
    assert shares[1, 0] == 0.0


def test_gated_rows_leave_no_trace_beside_learnt_ones():
    rng = np.random.default_rng(14)
    rows = rng.normal(size=(64, 3))
    weights = (np.arange(64) % 2).astype(float)
    both, only = learnt(rows), learnt(rows)
    both.learn(rows, weights)
    only.learn(rows[weights > 0])
    np.testing.assert_allclose(both.score(rows), only.score(rows), rtol=1e-12)


def test_precomputed_densities_change_nothing():
    rng = np.random.default_rng(15)
    rows = rng.normal(size=(64, 3))
    left, right = learnt(rows), learnt(rows)
    left.learn(rows, None, left.densities(rows))
    right.learn(rows)
    np.testing.assert_array_equal(left.score(rows), right.score(rows))


def test_empty_batches_are_welcome():
    mixture = Mixture(3)
    mixture.learn(np.empty((0, 3)))
    assert mixture.score(np.empty((0, 3))).shape == (0,)
    assert mixture.contributions(np.empty((0, 3))).shape == (0, 3)
    assert mixture.n_seen == 0


def test_old_rows_fade():
    rng = np.random.default_rng(16)
    mixture = learnt(rng.normal(size=(2000, 2)), config=MixtureConfig(forgetting=0.99))
    assert mixture.effective_rows < 140.0
    assert mixture.n_seen == 2000


@pytest.mark.parametrize(
    ("rows", "weights", "words"),
    [
        (np.zeros((4, 2)), None, r"expected \(n, 3\)"),
        (np.zeros(3), None, "expected"),
        (np.zeros((4, 3)), np.ones(3), r"expected \(4,\)"),
        (np.zeros((4, 3)), np.array([0.0, 1.0, 2.0, 0.0]), "expected 0 to 1"),
        (np.zeros((4, 3)), np.array([0.0, np.nan, 1.0, 0.0]), "expected 0 to 1"),
    ],
)
def test_wrong_shapes_and_weights_are_refused_before_anything_changes(rows, weights, words):
    mixture = Mixture(3)
    with pytest.raises(InputError, match=words):
        mixture.learn(rows, weights)
    assert mixture.effective_rows == 0.0
