import numpy as np
import pytest

from eacgm.streams.trend import BLOCK_WINDOWS, N_BLOCKS, N_FAST_BLOCKS, Trend

SPAN = N_BLOCKS * BLOCK_WINDOWS


def followed(level):
    trend = Trend()
    for window in range(SPAN):
        trend.observe(np.array([4e9, level(window)]))
    return trend.growing().tolist()


def test_steady_growth_is_a_leak():
    assert followed(lambda w: 4e9 + 5e6 * w) == [False, True]


@pytest.mark.parametrize(
    "level",
    [
        lambda w: 4e9 + 1e9 * (1 - np.exp(-w / 30)),
        lambda w: 4e9 if w < SPAN / 2 else 5e9,
        lambda w: 4e9 + 2e8 * np.sin(w / 20),
        lambda w: 4e9 + 1e4 * w,
    ],
    ids=["an allocator that warms up", "a step", "waves", "next to nothing"],
)
def test_other_growth_is_none(level):
    assert followed(level) == [False, False]


def test_too_little_history_says_nothing():
    trend = Trend()
    for window in range(SPAN - 1):
        trend.observe(np.array([1e9 * (1 + 0.001 * window)]))
    assert trend.growing().tolist() == [False]


def test_fast_growth_is_told_sooner():
    trend = Trend()
    for window in range(N_FAST_BLOCKS * BLOCK_WINDOWS):
        trend.observe(np.array([1e9 * (1 + 0.005 * window)]))
    assert trend.growing().tolist() == [True]
