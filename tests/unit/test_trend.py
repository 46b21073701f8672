import numpy as np
import pytest

from eacgm.streams.trend import BLOCK_WINDOWS, N_BLOCKS, N_FAST_BLOCKS, Trend

SPAN = N_BLOCKS * BLOCK_WINDOWS


def followed(level):
    trend = Trend()
    for window in range(SPAN):
        trend.observe("m", np.array([4e9, level(window)]))
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
        trend.observe("m", np.array([1e9 * (1 + 0.001 * window)]))
    assert trend.growing().tolist() == [False]


def test_fast_growth_is_told_sooner():
    trend = Trend()
    for window in range(N_FAST_BLOCKS * BLOCK_WINDOWS):
        trend.observe("m", np.array([1e9 * (1 + 0.005 * window)]))
    assert trend.growing().tolist() == [True]


def grown(name, windows, trend, level=lambda w: 1e9 * (1 + 0.005 * w), ranks=1):
    for window in range(windows):
        trend.observe(name, np.full(ranks, level(window)))


def test_another_reading_starts_anew():
    trend = Trend()
    grown("gpu_memory_used_bytes", N_FAST_BLOCKS * BLOCK_WINDOWS, trend)
    trend.observe("cuda_allocated_bytes", np.array([9e9]))
    assert trend.name == "cuda_allocated_bytes"
    assert trend.growing().tolist() == [False]


def test_a_new_rank_starts_anew_and_a_verdict_never_outlives_its_blocks():
    trend = Trend()
    grown("m", N_FAST_BLOCKS * BLOCK_WINDOWS, trend)
    trend.observe("m", np.array([1e9, 1e9]))
    trend.observe("m", np.array([1e9]))
    assert trend.growing().tolist() == [False]


def test_the_span_begins_where_a_rank_first_told():
    trend = Trend()
    for window in range((N_FAST_BLOCKS + 1) * BLOCK_WINDOWS):
        late = np.nan if window < BLOCK_WINDOWS else 1e9 * (1 + 0.005 * window)
        trend.observe("m", np.array([1e9 * (1 + 0.005 * window), late]))
    assert trend.growing().tolist() == [True, True]
    first, last = trend.span()
    assert np.isfinite(first).all()
    assert (last > first).all()
    assert first[1] > first[0]


def test_state_is_all_there_is():
    trend, fresh = Trend(), Trend()
    grown("m", N_FAST_BLOCKS * BLOCK_WINDOWS + 3, trend)
    fresh.load(trend.state())
    assert fresh.growing().tolist() == [True]
    assert fresh == trend
