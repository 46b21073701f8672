import numpy as np
import pytest

from eacgm.config import load
from eacgm.streams.scorer import HELD_OUT_EVERY, Scorer

NAMES = ["a", "b", "c"]
KEYS = [0, 1, 2, 3]
NOBODY = np.zeros(4, dtype=bool)


def normal(rng, n_keys=4, n_names=3):
    return rng.normal(size=(n_keys, n_names))


def taught(windows=150, seed=3):
    scorer, rng = Scorer(load()), np.random.default_rng(seed)
    for _ in range(windows):
        scorer.score(NAMES, KEYS, normal(rng))
        scorer.learn(NOBODY)
    return scorer, rng


def test_there_are_no_p_values_before_the_warm_up_is_over():
    scorer, rng = Scorer(load(settings=["detect.warmup_windows=60"])), np.random.default_rng(0)
    told = []
    for _ in range(80):
        told.append(np.isfinite(scorer.score(NAMES, KEYS, normal(rng)).p_values).all())
        scorer.learn(NOBODY)
    assert not any(told[:60])
    assert all(told[60:])


def test_what_stands_out_for_several_windows_is_anomalous_and_a_spike_is_not():
    scorer, rng = taught()
    verdicts = []
    for _ in range(5):
        rows = normal(rng)
        rows[2] += 12.0
        verdicts.append(scorer.score(NAMES, KEYS, rows))
        scorer.learn(NOBODY)
    assert not verdicts[0].anomalous.any()
    assert verdicts[-1].anomalous.tolist() == [False, False, True, False]
    assert verdicts[-1].streak.tolist() == [0, 0, 3, 0]
    assert verdicts[-1].contributions is not None
    assert verdicts[-1].contributions.shape == (4, 3)
    assert verdicts[-1].p_values[2] < 1e-3 < verdicts[-1].p_values[0]


def test_a_fault_is_not_learnt_however_long_it_lasts():
    scorer, rng = taught()
    rows = normal(rng)
    rows[2] += 12.0
    first = scorer.score(NAMES, KEYS, rows).scores[2]
    for _ in range(40):
        now = normal(rng)
        now[2] += 12.0
        scorer.score(NAMES, KEYS, now)
        assert not scorer.learn(NOBODY)[2]
    assert scorer.score(NAMES, KEYS, rows).scores[2] > 0.7 * first


def test_nothing_is_learnt_from_whom_an_open_incident_blames():
    scorer, rng = taught(20)
    accused = np.array([False, True, False, False])
    scorer.score(NAMES, KEYS, normal(rng))
    assert scorer.learn(accused).tolist() == [True, False, True, True]


def test_held_out_windows_are_not_learnt_from():
    scorer, rng = taught(60)
    while (scorer.windows + 1) % HELD_OUT_EVERY:
        scorer.score(NAMES, KEYS, normal(rng))
        scorer.learn(NOBODY)
    held_out, offered = sum(map(len, scorer.held_out)), scorer.reservoir.n_offered
    scorer.score(NAMES, KEYS, normal(rng))
    scorer.learn(NOBODY)
    assert scorer.reservoir.n_offered == offered
    assert sum(map(len, scorer.held_out)) == held_out + len(KEYS)


def test_an_unknown_reading_is_neutral():
    scorer, _ = taught()
    known = np.zeros((4, 3))
    gaps = known.copy()
    gaps[1] = np.nan
    assert scorer.score(NAMES, KEYS, gaps).scores == pytest.approx(scorer.score(NAMES, KEYS, known).scores)


def test_names_and_keys_may_come_later_and_in_another_order():
    scorer, _ = taught()
    usual = scorer.score(NAMES, KEYS, np.zeros((4, 3))).scores[0]
    row = np.array([[9.0, 0.0, 0.0]])
    same = scorer.score(NAMES, [0], row).scores
    assert scorer.score(["c", "a", "b"], [0], row[:, [2, 0, 1]]).scores == pytest.approx(same)
    wider = scorer.score(["new", "a", "b", "c"], [5, 0], np.zeros((2, 4)))
    assert scorer.names == ["a", "b", "c", "new"]
    assert np.isfinite(wider.scores).all()
    assert same[0] > usual + 5


def test_a_streak_belongs_to_its_key():
    scorer, rng = taught()
    for _ in range(5):
        rows = normal(rng)
        rows[2] += 12.0
        scorer.score(NAMES, KEYS, rows)
        scorer.learn(NOBODY)
    moved = normal(rng, 5)
    moved[0] += 12.0
    verdict = scorer.score(NAMES, [2, 9, 0, 1, 3], moved)
    assert verdict.streak.tolist()[0] == 4
    assert verdict.streak.tolist()[1:] == [0, 0, 0, 0]


@pytest.mark.parametrize("windows", [5, 45, 52, 120])
def test_snapshot_is_invisible(windows):
    scorer, rng = taught(windows)
    fresh = Scorer(load())
    fresh.load(scorer.state())
    for _ in range(20):
        rows = normal(rng)
        mine, theirs = scorer.score(NAMES, KEYS, rows), fresh.score(NAMES, KEYS, rows)
        np.testing.assert_array_equal(mine.scores, theirs.scores)
        np.testing.assert_array_equal(mine.p_values, theirs.p_values)
        np.testing.assert_array_equal(scorer.learn(NOBODY), fresh.learn(NOBODY))
