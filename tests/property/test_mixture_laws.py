"""Laws of the mixture over any sequence of batches, adversarial ones included."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eacgm.config import MixtureConfig
from eacgm.streams.margins import Margins
from eacgm.streams.mixture import Mixture

cells = st.one_of(
    st.floats(-4.0, 4.0),
    st.sampled_from([0.0, -0.0, np.nan, np.inf, -np.inf, 1e300, -1e300, 1e-300, 1e5, -1e5, 1e4, 5e-324]),
)


@st.composite
def batches(draw, width=None, n_batches=6):
    width = width or draw(st.integers(1, 6))
    shapes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=n_batches))
    rows = [draw(hnp.arrays(np.float64, (n, width), elements=cells)) for n in shapes]
    weights = [draw(hnp.arrays(np.float64, n, elements=st.sampled_from([0.0, 0.3, 1.0]))) for n in shapes]
    return width, list(zip(rows, weights, strict=True))


def start(width, n_components=3, seed=0):
    rng = np.random.default_rng(seed)
    margins = Margins(width)
    margins.seen[:], margins.count[:], margins.spread[:] = True, 50.0, 1.0
    covariances = np.repeat(np.eye(width)[None], n_components, axis=0)
    means = rng.normal(size=(n_components, width))
    weights = rng.dirichlet(np.ones(n_components))
    return Mixture.from_parameters((weights, means, covariances), margins, 50.0, MixtureConfig(forgetting=0.99))


def check_sane(mixture, rows):
    gaussians = mixture.gaussians
    scale = np.abs(gaussians.covariances).max()
    np.testing.assert_allclose(gaussians.covariances, gaussians.covariances.transpose(0, 2, 1), atol=1e-9 * scale)
    assert np.linalg.eigvalsh(gaussians.covariances).min() > 0.0
    now = mixture.densities(rows)
    assert np.isfinite(now.scores).all()
    np.testing.assert_allclose(now.responsibilities.sum(axis=1), 1.0, atol=1e-12)
    shares = mixture.contributions(rows)
    assert (shares >= 0.0).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, atol=1e-9)


@given(batches(), st.booleans())
@settings(max_examples=120, deadline=None)
def test_covariances_stay_positive_definite_and_scores_finite(case, with_components):
    width, sequence = case
    mixture = start(width) if with_components else Mixture(width, MixtureConfig(forgetting=0.9))
    for rows, weights in sequence:
        mixture.learn(rows, weights)
        check_sane(mixture, rows)


@given(st.integers(0, 1000), st.sampled_from([1, 8]))
@settings(max_examples=20, deadline=None)
def test_covariances_survive_an_adversary_that_swings_between_extremes(seed, batch):
    rng = np.random.default_rng(seed)
    mixture = Mixture(5, MixtureConfig(forgetting=0.9))
    for _ in range(60):
        scale = 10.0 ** rng.integers(-8, 12)
        direction = rng.normal(size=5)
        rows = scale * (rng.normal(size=(batch, 1)) * direction)
        mixture.learn(rows)
    check_sane(mixture, rows)


@given(batches())
@settings(max_examples=60, deadline=None)
def test_rows_of_weight_zero_change_nothing(case):
    width, sequence = case
    mixture = start(width)
    before = mixture.state()
    for rows, _ in sequence:
        mixture.learn(rows, np.zeros(len(rows)))
    assert_same_state(mixture.state(), before)


@given(batches(width=3), st.integers(0, 5))
@settings(max_examples=80, deadline=None)
def test_snapshot_and_restore_are_invisible_bit_for_bit(case, cut):
    width, sequence = case
    straight, broken = start(width), start(width)
    for index, (rows, weights) in enumerate(sequence):
        if index == cut:
            successor = Mixture(1, broken.config)
            successor.load(broken.state())
            broken = successor
        straight.learn(rows, weights)
        broken.learn(rows, weights)
        np.testing.assert_array_equal(straight.score(rows), broken.score(rows))
    assert_same_state(straight.state(), broken.state())


@given(st.integers(0, 10_000), st.permutations(range(5)))
@settings(max_examples=40, deadline=None)
def test_order_of_the_features_does_not_matter(seed, order):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(64, 5)) @ rng.normal(size=(5, 5))
    rows[rng.random(rows.shape) < 0.1] = np.nan
    order = np.array(order)
    left, right = Mixture(5), Mixture(5)
    for at in range(0, 64, 8):
        left.learn(rows[at : at + 8])
        right.learn(rows[at : at + 8][:, order])
    np.testing.assert_allclose(left.score(rows), right.score(rows[:, order]), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(left.contributions(rows)[:, order], right.contributions(rows[:, order]), atol=1e-9)


def apart(left, right, probe):
    """Return the largest difference of two mixtures' scores, as a share of the score: far out they grow steeply."""
    ours, theirs = left.score(probe), right.score(probe)
    return (np.abs(ours - theirs) / np.maximum(theirs, 3.0)).max()


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_order_of_the_batches_hardly_matters(seed):
    rng = np.random.default_rng(seed)
    warm, rest = rng.normal(size=(400, 3)), rng.normal(size=(40, 8, 3))
    left, right = Mixture(3), Mixture(3)
    left.learn(warm)
    right.learn(warm)
    for batch, other in zip(rest, rng.permutation(rest), strict=True):
        left.learn(batch)
        right.learn(other)
    probe = 2.0 * rng.normal(size=(100, 3))
    assert apart(caught_up(left), caught_up(right), probe) < 0.02


@given(st.integers(0, 10_000), st.integers(1, 64))
@settings(max_examples=20, deadline=None)
def test_size_of_the_batches_hardly_matters(seed, size):
    rng = np.random.default_rng(seed)
    warm, rest = rng.normal(size=(400, 3)), rng.normal(size=(320, 3))
    left, right = Mixture(3), Mixture(3)
    left.learn(warm)
    right.learn(warm)
    for at in range(0, 320, size):
        left.learn(rest[at : at + size])
    right.learn(rest)
    probe = 2.0 * rng.normal(size=(100, 3))
    assert apart(caught_up(left), caught_up(right), probe) < 0.02
    # the Gaussians that score now lag a little, not much
    assert apart(left, right, probe) < 0.05


def caught_up(mixture):
    """Return a mixture that has learnt the same, its Gaussians derived from all of it."""
    fresh = Mixture(mixture.n_features, mixture.config)
    fresh.load(mixture.state() | {"folded": 0.0, "gaussians": None})
    return fresh


def assert_same_state(left, right):
    assert left.keys() == right.keys()
    for name, value in left.items():
        if isinstance(value, dict):
            assert_same_state(value, right[name])
        else:
            np.testing.assert_array_equal(value, right[name])
