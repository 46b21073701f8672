"""Windows: one second long, a second of lateness allowed, unless a test says otherwise."""

import pytest

from eacgm.config import WindowConfig
from eacgm.events import HostEvent, ProcessEvent
from eacgm.streams.window import HORIZON_NS, SILENT_WINDOWS, TALLY_EVENTS, Windows

SECOND = 1_000_000_000


def told(start_s: float, end_s: float, kind=HostEvent, rank=0):
    return kind(job="j", rank=rank, start_ns=int(start_s * SECOND), end_ns=int(end_s * SECOND))


def spans(closed):
    return [(w.start_ns / SECOND, w.end_ns / SECOND, len(w.events)) for w in closed]


@pytest.fixture
def windows():
    return Windows(WindowConfig(size_ms=1000, lateness_ms=1000))


def test_a_window_closes_once_the_watermark_has_passed_its_end(windows):
    # events   [100─101) [101─102)
    # newest                    102 ─ lateness 1 = 101: the first is closed
    assert spans(windows.add(told(100, 101))) == []
    assert spans(windows.add(told(101, 102))) == [(100, 101, 1)]


def test_the_middle_of_the_interval_decides(windows):
    # 100       101       102
    #  |   [───────────)   |      100.4 ─ 101.8: middle 101.1
    #  | [──────────)      |      100.2 ─ 101.3: middle 100.75
    windows.add(told(100.4, 101.8))
    windows.add(told(100.2, 101.3))
    assert spans(windows.close_all()) == [(100, 101, 1), (101, 102, 1)]


def test_silence_is_closed_like_any_window(windows):
    # [100─101)  .    .    [103─104)  [104─105)
    windows.add(told(100, 101))
    windows.add(told(103, 104))
    assert spans(windows.add(told(104, 105))) == [(103, 104, 1)]
    assert windows.late == 0


def test_silent_windows_come_in_order_between_the_others(windows):
    windows.add(told(100, 101))
    closed = windows.add(told(103, 104))
    assert spans(closed) == [(100, 101, 1), (101, 102, 0), (102, 103, 0)]


def test_a_long_gap_is_told_as_one_window_not_as_thousands(windows):
    windows.add(told(100, 101))
    closed = windows.add(told(3000, 3001))
    assert len(closed) == 1 + SILENT_WINDOWS + 1
    assert spans(closed)[-1] == (101 + SILENT_WINDOWS, 3000, 0)


def test_a_late_event_is_counted_and_not_taken(windows):
    windows.add(told(100, 101))
    windows.add(told(102, 103))
    assert windows.add(told(100, 101)) == ()
    assert windows.late == 1
    closed = windows.close_all()
    assert sum(len(w.events) for w in closed) == 1
    assert closed[0].late == 1


def test_who_a_process_is_counts_even_when_told_late(windows):
    windows.add(told(100, 101))
    windows.add(told(102, 103))
    windows.add(told(100, 100, kind=ProcessEvent))
    assert windows.late == 1
    assert [type(e).__name__ for w in windows.close_all() for e in w.events] == ["HostEvent", "ProcessEvent"]


def test_within_the_lateness_nothing_is_late(windows):
    # 100  101  102  103
    #   [────)              ends 0.9 s before the newest, and comes after it
    #      [────)
    for start in (100.9, 100, 101.8, 100.9, 102.7, 101.8):
        windows.add(told(start, start + 1))
    windows.close_all()
    assert windows.late == 0


def test_one_broken_clock_does_not_drag_the_watermark(windows):
    windows.add(told(100, 101))
    future = 100 + HORIZON_NS / SECOND + 10
    assert windows.add(told(future, future + 1)) == ()
    assert windows.refused == 1
    assert spans(windows.add(told(101, 102))) == [(100, 101, 1)]


def test_a_first_event_of_the_future_does_not_shut_out_the_present(windows):
    future = 100 + HORIZON_NS / SECOND + 10
    windows.add(told(future, future + 1))
    windows.add(told(100, 101))
    assert windows.refused == 1
    assert spans(windows.add(told(101, 102))) == [(100, 101, 1)]


def test_after_resting_a_job_may_go_on_at_any_later_time(windows):
    windows.add(told(100, 101))
    windows.close_all()
    assert windows.resting
    later = 100 + 3 * HORIZON_NS / SECOND
    windows.add(told(later, later + 1))
    assert windows.refused == 0
    assert not windows.resting


def test_state_is_all_there_is(windows):
    for start in (100, 101, 103, 100):
        windows.add(told(start, start + 1))
    other = Windows(WindowConfig(size_ms=1000, lateness_ms=1000))
    other.load(windows.state())
    assert spans(other.add(told(104, 105))) == spans(windows.add(told(104, 105)))
    assert (other.late, other.refused) == (windows.late, windows.refused)


TODAY_S = 1_767_225_600


def test_a_clock_that_began_in_1970_does_not_silence_the_others(windows):
    # rank 0's node lives in 1970 and speaks first, and goes on speaking; ranks 1-3 live today
    closed = []
    for second in range(30):
        closed += windows.add(told(second, second + 1))
        for rank in (1, 2, 3):
            closed += windows.add(told(TODAY_S + second, TODAY_S + second + 1, rank=rank))
    today = [window for window in closed if window.start_ns >= TODAY_S * SECOND]
    assert len(today) > 20
    assert all(len(window.events) == 3 for window in today[1:])
    # no window spans the years between
    assert max(window.end_ns - window.start_ns for window in closed) == SECOND


def test_one_clock_ahead_stays_refused_however_long_it_goes_on(windows):
    closed = []
    for second in range(100):
        closed += windows.add(told(TODAY_S + second, TODAY_S + second + 1))
        for rank in (1, 2, 3):
            closed += windows.add(told(second, second + 1, rank=rank))
    assert windows.refused >= 100 - TALLY_EVENTS
    assert sum(len(window.events) for window in closed[-50:]) == 150


def test_the_tally_goes_on_after_a_snapshot(windows):
    other = Windows(WindowConfig(size_ms=1000, lateness_ms=1000))
    for second in range(40):
        windows.add(told(second, second + 1))
        other.load(windows.state())
        windows, other = other, windows
        windows.add(told(TODAY_S + second, TODAY_S + second + 1, rank=1))
        windows.add(told(TODAY_S + second, TODAY_S + second + 1, rank=2))
    assert windows.newest_ns == (TODAY_S + 40) * SECOND
