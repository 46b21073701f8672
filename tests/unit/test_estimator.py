import numpy as np
import pytest
import river.checks

from eacgm.streams.estimator import GaussianMixtureDetector


def labelled_rows(n, seed=3):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(6, 6))
    for _ in range(n):
        strange = bool(rng.random() < 0.05)
        values = factor @ rng.normal(size=6) + (6.0 * rng.normal(size=6) if strange else 0.0)
        yield {f"f{index}": float(value) for index, value in enumerate(values)}, strange


def checks():
    # River's own data set for anomaly detectors is a download; a list, since a check may walk it twice.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(river.checks, "_yield_datasets", lambda model, scale=1: [list(labelled_rows(600 * scale))])
        yield from river.checks.yield_checks(GaussianMixtureDetector())


@pytest.mark.parametrize("check", list(checks()), ids=lambda check: check.__name__)
def test_estimator_conforms_to_river(check):
    check(GaussianMixtureDetector())


def test_rows_as_matrix_and_as_dictionaries_give_the_same_model():
    rows = np.random.default_rng(0).normal(size=(400, 3))
    one, many = GaussianMixtureDetector(), GaussianMixtureDetector()
    for row in rows:
        one.learn_one(dict(enumerate(row.tolist())))
    many.learn_many(rows)
    probe = rows[:20]
    singles = [one.score_one(dict(enumerate(row.tolist()))) for row in probe]
    np.testing.assert_allclose(singles, many.score_many(probe), rtol=1e-9)


def test_units_do_not_matter():
    rows = np.random.default_rng(1).normal(size=(500, 3))
    factor, shift = np.array([1e6, 1e-6, 1.0]), np.array([0.0, 5.0, -1e3])
    plain, scaled = GaussianMixtureDetector(), GaussianMixtureDetector()
    plain.learn_many(rows)
    scaled.learn_many(rows * factor + shift)
    left, right = plain.score_many(rows[:50]), scaled.score_many(rows[:50] * factor + shift)
    np.testing.assert_allclose(left, right, atol=1e-5)


def test_lasting_change_is_adopted():
    rng = np.random.default_rng(2)
    model = GaussianMixtureDetector()
    model.learn_many(rng.normal(size=(2000, 3)))
    changed = rng.normal(size=(4000, 3)) + 20.0
    before = model.score_many(changed[:100]).mean()
    model.learn_many(changed)
    assert model.score_many(changed[:100]).mean() < 0.2 * before


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e308, None])
def test_odd_values_are_survived(value):
    model = GaussianMixtureDetector()
    for index in range(300):
        model.learn_one({"a": float(index % 7), "b": value if index % 3 == 0 else 1.0})
    assert np.isfinite(model.score_one({"a": 3.0, "b": value, "c": 1.0}))
