"""The demo's play: when the fault is planted and undone, and what counts as right."""

import numpy as np
import pytest

from eacgm.demo.play import FAULT_SECONDS, MARGIN_WINDOWS, STAND_SECONDS, Act, Cue, Play
from eacgm.events import AlertEvent, FrameEvent

SECOND = 1_000_000_000
WARMUP = 5


def play_of(fault: str, limit_seconds: float = 180.0) -> Play:
    return Play(fault, rank=2, n_ranks=4, warmup_windows=WARMUP, limit_seconds=limit_seconds, started_ns=0)


def frame(second: int, present: list[bool] | None = None) -> FrameEvent:
    shown = present or [True] * 4
    return FrameEvent(
        job="j",
        start_ns=second * SECOND,
        end_ns=(second + 1) * SECOND,
        ranks=np.arange(4),
        present=shown,
        nodes=["n"] * 4,
        groups=[""] * 4,
        features=["step_seconds"],
        values=np.full((4, 1), 0.1),
    )


def alert(cause: str, ranks: list[int], state: str = "open", incident: str = "i") -> AlertEvent:
    return AlertEvent(
        job="j",
        start_ns=0,
        end_ns=1,
        incident=incident,
        state=state,
        cause=cause,
        ranks=np.array(ranks, dtype=np.int64),
    )


def warmed(fault: str) -> tuple[Play, int]:
    """Return a play whose warm-up has just ended, and the time."""
    play = play_of(fault)
    for second in range(WARMUP + MARGIN_WINDOWS):
        assert play.cue(second * SECOND) is Cue.WAIT
        play.see_frame(frame(second))
    return play, (WARMUP + MARGIN_WINDOWS) * SECOND


def planted(fault: str) -> tuple[Play, int]:
    play, now = warmed(fault)
    assert play.cue(now) is Cue.PLANT
    play.planted(now)
    return play, now


def test_warm_up_begins_only_when_every_rank_is_present():
    play = play_of("slow")
    play.see_frame(frame(0, [True, True, False, True]))
    assert play.act is Act.START
    play.see_frame(frame(1))
    assert play.act is Act.WARM_UP
    assert play.warmup_left == WARMUP + MARGIN_WINDOWS - 1


def test_fault_stands_for_a_while_after_its_alert_and_is_then_undone():
    play, now = planted("slow")
    play.see_alert(alert("slow_compute", [2]), now + 6 * SECOND)
    assert play.cue(now + 6 * SECOND) is Cue.WAIT
    assert play.cue(now + 6 * SECOND + int(STAND_SECONDS * SECOND)) is Cue.STOP


def test_fault_without_an_alert_is_undone_in_the_end():
    play, now = planted("slow")
    assert play.cue(now + int(FAULT_SECONDS * SECOND) - 1) is Cue.WAIT
    assert play.cue(now + int(FAULT_SECONDS * SECOND)) is Cue.STOP


@pytest.mark.parametrize(("fault", "cause"), [("slow", "slow_compute"), ("pause", "hang"), ("data", "data_stall")])
def test_right_rank_and_cause_that_resolve_are_right(fault, cause):
    play, now = planted(fault)
    play.see_alert(alert(cause, [2]), now + 4 * SECOND)
    play.stopped(now + 9 * SECOND)
    assert play.cue(now + 10 * SECOND) is Cue.WAIT
    play.see_alert(alert(cause, [2], "resolved"), now + 20 * SECOND)
    assert play.cue(now + 20 * SECOND) is Cue.END
    verdict = play.verdict()
    assert verdict.right
    assert verdict.delay_seconds == pytest.approx(4.0)


def test_update_that_finds_the_right_cause_counts_from_the_update():
    play, now = planted("data")
    play.see_alert(alert("unknown", [2]), now + 3 * SECOND)
    play.see_alert(alert("data_stall", [2], "update"), now + 7 * SECOND)
    play.stopped(now + 12 * SECOND)
    play.see_alert(alert("data_stall", [2], "resolved"), now + 20 * SECOND)
    verdict = play.verdict()
    assert verdict.right
    assert verdict.delay_seconds == pytest.approx(7.0)


@pytest.mark.parametrize(
    ("cause", "ranks"), [("slow_compute", [1]), ("slow_compute", [1, 2]), ("data_stall", [2]), ("slow_compute", [])]
)
def test_wrong_rank_or_cause_is_wrong(cause, ranks):
    play, now = planted("slow")
    play.see_alert(alert(cause, ranks), now + 4 * SECOND)
    play.stopped(now + 9 * SECOND)
    play.see_alert(alert(cause, ranks, "resolved"), now + 20 * SECOND)
    assert not play.verdict().right


def test_second_incident_makes_a_right_one_wrong():
    play, now = planted("slow")
    play.see_alert(alert("slow_compute", [2]), now + 4 * SECOND)
    play.see_alert(alert("hang", [0], incident="other"), now + 5 * SECOND)
    play.stopped(now + 9 * SECOND)
    for incident, cause in (("i", "slow_compute"), ("other", "hang")):
        play.see_alert(alert(cause, [2], "resolved", incident), now + 20 * SECOND)
    verdict = play.verdict()
    assert not verdict.right
    assert "hang at rank 0" in verdict.text


def test_alert_before_the_fault_is_a_false_alarm():
    play, now = warmed("slow")
    play.see_alert(alert("slow_compute", [2]), now - 1)
    play.planted(now)
    play.stopped(now + 9 * SECOND)
    play.see_alert(alert("slow_compute", [2], "resolved"), now + 20 * SECOND)
    assert not play.verdict().right


def test_incident_that_never_resolves_is_wrong():
    play, now = planted("slow")
    play.see_alert(alert("slow_compute", [2]), now + 4 * SECOND)
    play.stopped(now + 9 * SECOND)
    assert play.cue(180 * SECOND) is Cue.END
    assert "did not resolve" in play.verdict().text


def test_nothing_planted_and_nothing_raised_is_right():
    play, now = warmed("none")
    assert play.cue(now) is Cue.WAIT
    assert play.cue(180 * SECOND) is Cue.END
    assert play.verdict().right


def test_nothing_planted_and_something_raised_is_wrong():
    play, now = warmed("none")
    play.see_alert(alert("network", []), now)
    assert not play.verdict().right


@pytest.mark.parametrize("fault", ["slow", "none"])
def test_play_that_saw_too_little_is_not_right(fault):
    play = play_of(fault)
    assert not play.verdict().right
    play.see_frame(frame(0))
    play.cue(180 * SECOND)
    assert not play.verdict().right
