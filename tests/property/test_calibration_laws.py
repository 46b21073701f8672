import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from eacgm.streams.calibration import Calibration

SHAPES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "heavy": lambda rng, n: rng.standard_t(2, n),
    "ties": lambda rng, n: rng.integers(0, 5, n).astype(float),
    "scaled": lambda rng, n: 1e6 * rng.exponential(size=n) - 1e9,
    "constant": lambda rng, n: np.full(n, 3.0),
}


@given(st.sampled_from(sorted(SHAPES)), st.integers(20, 300), st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_p_values_are_uniform_or_conservative_on_exchangeable_scores(shape, n_held_out, seed):
    rng = np.random.default_rng(seed)
    levels = np.array([0.01, 0.05, 0.2, 0.5])
    hits = np.zeros(4)
    n_trials, n_probes = 60, 20
    for _ in range(n_trials):
        calibration = Calibration()
        calibration.add(SHAPES[shape](rng, n_held_out))
        hits += (calibration.p_values(SHAPES[shape](rng, n_probes))[:, None] <= levels).sum(axis=0)
    rate = hits / (n_trials * n_probes)
    # Probes of one trial share its held-out scores: the rate's error is that of the trials, not of the probes.
    error = np.sqrt(levels * (1.0 - levels) * (1.0 / (n_trials * n_probes) + 1.0 / (n_trials * n_held_out)))
    assert (rate <= levels + 5.0 * error).all()


@given(st.lists(st.floats(-1e12, 1e12), min_size=20, max_size=80), st.lists(st.floats(-1e13, 1e13), max_size=20))
@settings(max_examples=100, deadline=None)
def test_p_values_are_in_range_and_never_rise_with_the_score(held_out, scores):
    calibration = Calibration()
    calibration.add(np.array(held_out))
    p_values = calibration.p_values(np.sort(np.array(scores)))
    assert ((p_values > 0.0) & (p_values <= 1.0)).all()
    assert (np.diff(p_values) <= 0.0).all()
