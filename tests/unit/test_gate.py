import numpy as np

from eacgm.streams.gate import ADOPTION_WINDOWS, Gate

KEYS = np.arange(4)


def only(rank):
    return np.arange(4) == rank


def test_unusual_row_is_calibrated_on_but_not_learnt():
    passage = Gate().observe(KEYS, only(2))
    assert passage.learn.tolist() == [True, True, False, True]
    assert passage.calibrate.all()


def test_rank_that_is_often_unusual_stays_out_until_it_has_calmed_down():
    gate = Gate()
    for _ in range(5):
        gate.observe(KEYS, only(1))
    calm = [gate.observe(KEYS, only(-1)).learn[1] for _ in range(20)]
    assert not calm[0]
    assert calm[-1]
    assert calm == sorted(calm)


def test_change_of_regime_is_adopted_once():
    gate = Gate()
    adopted = [gate.observe(KEYS, np.ones(4, dtype=bool)).adopted for _ in range(ADOPTION_WINDOWS)]
    assert adopted == [False] * (ADOPTION_WINDOWS - 1) + [True]
    assert gate.observe(KEYS, only(-1)).learn.all()


def test_half_of_the_ranks_make_no_regime():
    gate = Gate()
    assert not any(gate.observe(KEYS, KEYS < 2).adopted for _ in range(3 * ADOPTION_WINDOWS))


def test_levels_follow_their_keys():
    gate = Gate()
    for _ in range(8):
        gate.observe(KEYS, only(3))
    passage = gate.observe(np.array([7, 3, 0]), np.zeros(3, dtype=bool))
    assert passage.learn.tolist() == [True, False, True]


def test_recurrence_is_measured():
    rng = np.random.default_rng(0)
    independent, clustered = Gate(), Gate()
    state = np.zeros(64, dtype=bool)
    keys = np.arange(64)
    for _ in range(1500):
        independent.observe(keys, rng.random(64) < 0.02)
        state = np.where(state, rng.random(64) < 0.5, rng.random(64) < 0.01)
        clustered.observe(keys, state)
    assert independent.recurrence < 0.05
    assert 0.4 < clustered.recurrence < 0.6


def test_snapshot_and_restore_are_invisible():
    rng = np.random.default_rng(1)
    straight, broken = Gate(), Gate()
    for index in range(200):
        if index % 17 == 0:
            successor = Gate()
            successor.load(broken.state())
            broken = successor
        unusual = rng.random(4) < (0.9 if index > 60 else 0.2)
        left, right = straight.observe(KEYS, unusual), broken.observe(KEYS, unusual)
        assert (left.learn == right.learn).all()
        assert (left.calibrate == right.calibrate).all()
        assert (left.adopted, straight.recurrence) == (right.adopted, broken.recurrence)


def test_no_keys_are_no_regime():
    gate = Gate()
    assert not any(gate.observe(KEYS[:0], np.zeros(0, dtype=bool)).adopted for _ in range(100))
