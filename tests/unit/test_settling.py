import pytest

from eacgm.streams.settling import MAX_SETTLING_WINDOWS, SETTLING_WINDOWS, Settling


def settled_after(steps):
    """Return the number of active windows after which a job of these step lengths has settled, None if it has not."""
    settling = Settling()
    for window, step in enumerate(steps, 1):
        settling.observe(step, 1.0)
        if settling.windows:
            return window
    return None


def test_a_steady_job_settles_once_two_runs_agree():
    assert settled_after([0.2] * 50) == 2 * SETTLING_WINDOWS


def test_slow_first_steps_are_waited_out():
    warming = [2.0, 1.5, 1.2, 0.9, 0.7, 0.5, 0.4, 0.3, 0.25] + [0.2] * 50
    # medians of windows 8-12 and 13-17: both 0.2
    assert settled_after(warming) == 17


def test_a_job_whose_steps_never_agree_settles_in_the_end():
    growing = [1.2**window for window in range(MAX_SETTLING_WINDOWS + 5)]
    assert settled_after(growing) == MAX_SETTLING_WINDOWS


def test_of_long_steps_fewer_must_agree():
    # two and two of 4.5 s say as much as five and five windows of short ones
    assert settled_after([23.0, 7.0, 5.8, 5.2, 4.7, 4.5, 4.5, 4.4, 4.4]) == 7


def test_a_job_without_steps_settles_by_its_windows():
    assert settled_after([None] * 50) == 2 * SETTLING_WINDOWS


def test_windows_count_from_settling_on():
    settling = Settling()
    for _ in range(2 * SETTLING_WINDOWS + 3):
        settling.observe(0.2, 1.0)
    assert settling.windows == 4
    assert settling.typical_seconds() == 0.2
    assert Settling().typical_seconds() is None


@pytest.mark.parametrize("windows", [3, 9, 12])
def test_state_is_all_there_is(windows):
    settling, fresh = Settling(), Settling()
    for _ in range(windows):
        settling.observe(0.3, 1.0)
    fresh.load(settling.state())
    for one in (settling, fresh):
        for _ in range(4):
            one.observe(0.2, 1.0)
    assert fresh.state() == settling.state()
