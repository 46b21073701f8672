import numpy as np
import pytest

from eacgm.bench.verdict import Expectation, ExpectedAlert, judge, summarise
from eacgm.events import AlertEvent

SECOND_NS = 1_000_000_000


def message(at_s, cause="hang", ranks=(17,), incident="a", detected_s=None, state="open"):
    detected_s = at_s if detected_s is None else detected_s
    return AlertEvent(
        job="j",
        start_ns=(at_s - 1) * SECOND_NS,
        end_ns=at_s * SECOND_NS,
        published_ns=at_s * SECOND_NS,
        incident=incident,
        state=state,
        cause=cause,
        ranks=np.array(ranks, dtype=np.int64),
        detected_at_ns=detected_s * SECOND_NS,
    )


HANG = Expectation(
    alerts=(ExpectedAlert(causes=("hang",), ranks=(17, 18), onset_s=100, max_delay_s=60),),
    max_incidents=1,
    forbidden_causes=("network",),
)
CONTROL = Expectation(alerts=(), max_incidents=0, forbidden_causes=("hang",))


def test_a_right_alert_in_time_passes_with_its_delay():
    verdict = judge("c", HANG, [message(112)], 330)
    assert verdict.passed
    assert verdict.delays_s == (12.0,)


@pytest.mark.parametrize("at_s", [99, 161])
def test_an_incident_detected_outside_the_interval_is_a_miss(at_s):
    assert judge("c", HANG, [message(at_s)], 330).delays_s == (None,)


@pytest.mark.parametrize("at_s", [100, 160])
def test_both_ends_of_the_interval_count(at_s):
    assert judge("c", HANG, [message(at_s)], 330).passed


@pytest.mark.parametrize("ranks", [(), (3,), (17, 3)])
def test_no_rank_or_another_rank_is_a_miss(ranks):
    assert not judge("c", HANG, [message(112, ranks=ranks)], 330).passed


def test_one_of_the_culprits_is_enough():
    assert judge("c", HANG, [message(112, ranks=(18,))], 330).passed


def test_ranks_are_not_judged_where_none_are_given():
    expected = Expectation((ExpectedAlert(("hang",), None, 100, 60),), 1, ())
    assert judge("c", expected, [message(112, ranks=(3,))], 330).passed


def test_a_cause_that_an_update_brings_in_time_counts_from_the_update():
    alerts = [message(110, cause="unknown"), message(130, detected_s=110, state="update")]
    assert judge("c", HANG, alerts, 330).delays_s == (30.0,)


def test_a_cause_that_comes_after_the_deadline_is_a_miss():
    alerts = [message(110, cause="unknown"), message(161, detected_s=110, state="update")]
    assert not judge("c", HANG, alerts, 330).passed


def test_a_right_cause_that_is_taken_back_before_the_deadline_is_a_miss():
    alerts = [message(110), message(130, cause="unknown", detected_s=110, state="update")]
    assert not judge("c", HANG, alerts, 330).passed


def test_an_incident_from_before_the_onset_does_not_count_even_if_it_is_updated_later():
    alerts = [message(50), message(112, detected_s=50, state="update")]
    assert not judge("c", HANG, alerts, 330).passed


def test_updates_are_free_and_incidents_beyond_the_limit_are_counted():
    updates = [
        message(112),
        message(140, detected_s=112, state="update"),
        message(150, detected_s=112, state="resolved"),
    ]
    assert judge("c", HANG, updates, 330).passed
    verdict = judge("c", HANG, [*updates, message(200, incident="b"), message(210, incident="c")], 330)
    assert verdict.extra == 2
    assert not verdict.passed


def test_a_forbidden_cause_fails_the_case_even_if_an_update_mends_it():
    verdict = judge("c", HANG, [message(105, cause="network"), message(112, detected_s=105, state="update")], 330)
    assert verdict.delays_s == (12.0,)
    assert verdict.forbidden == ("network",)
    assert not verdict.passed


def test_a_control_passes_in_silence_only():
    assert judge("c", CONTROL, [], 900).passed
    assert not judge("c", CONTROL, [message(112, cause="unknown")], 900).passed


def test_the_summary_counts_alerts_incidents_and_hours():
    verdicts = [
        judge("met", HANG, [message(112)], 1800),
        judge("missed", HANG, [], 1800),
        judge("loud", CONTROL, [message(112), message(113, incident="b")], 3600),
    ]
    summary = summarise(verdicts)
    assert (summary.cases, summary.passed) == (3, 1)
    assert (summary.met_alerts, summary.expected_alerts, summary.recall) == (1, 2, 0.5)
    assert (summary.extra_incidents, summary.extra_incidents_per_hour) == (2, 1.0)


def test_the_summary_of_nothing_has_no_recall():
    assert summarise([]).recall is None
