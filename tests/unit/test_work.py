import numpy as np
import pytest

from eacgm.events import FrameEvent
from eacgm.streams.work import AMOUNTS, LEAST_WINDOWS, WorkMeter


def frame(step_seconds, ranks=3, **amounts):
    features = ["step_seconds", *amounts]
    row = [step_seconds, *amounts.values()]
    return FrameEvent(
        job="j", start_ns=0, end_ns=10**9, ranks=np.arange(ranks), present=[True] * ranks, nodes=[""] * ranks,
        groups=[""] * ranks, features=features, values=np.tile(np.array(row, dtype=float), (ranks, 1)),
    )  # fmt: skip


def feed(meter, windows, one, healthy=True):
    columns = {name: at for at, name in enumerate(one.features)}
    for _ in range(windows):
        meter.observe(one, columns, healthy=healthy)


def test_nothing_is_said_before_enough_was_seen():
    meter = WorkMeter()
    feed(meter, LEAST_WINDOWS - 1, frame(0.1, cuda_launches=100.0))
    assert meter.ratios() == {}
    feed(meter, 1, frame(0.1, cuda_launches=100.0))
    assert meter.ratios() == {"cuda_launches": pytest.approx(1.0)}


def test_a_slower_step_of_the_same_work_is_no_more_work():
    meter = WorkMeter()
    feed(meter, 60, frame(0.1, cuda_launches=100.0))
    # half the steps a second, so half the launches a second
    feed(meter, 200, frame(0.2, cuda_launches=50.0), healthy=False)
    assert meter.ratios()["cuda_launches"] == pytest.approx(1.0)


def test_a_longer_step_with_more_bytes_is_more_work_until_it_is_adopted():
    meter = WorkMeter()
    feed(meter, 60, frame(0.1, net_sent_bytes=1e6))
    feed(meter, 200, frame(0.2, net_sent_bytes=1e6), healthy=False)
    assert meter.ratios()["net_sent_bytes"] == pytest.approx(2.0, rel=0.01)
    meter.adopt()
    assert meter.ratios()["net_sent_bytes"] == pytest.approx(1.0)


def test_counted_steps_win_over_the_step_s_length():
    meter = WorkMeter()
    feed(meter, 60, frame(0.1, step_count=5.0, cuda_launches=100.0))
    assert meter.steps == 5.0
    assert meter.usual[AMOUNTS.index("cuda_launches")] == pytest.approx(20.0)


def test_what_is_not_told_is_left_out():
    meter = WorkMeter()
    feed(meter, 60, frame(0.1, cuda_launches=np.nan, net_sent_bytes=1e6))
    assert list(meter.ratios()) == ["net_sent_bytes"]
    without_steps = frame(0.1)
    meter.observe(without_steps, {}, healthy=True)
    feed(meter, 5, frame(np.nan, net_sent_bytes=9e9))
    assert meter.ratios()["net_sent_bytes"] == pytest.approx(1.0)


def test_state_is_all_there_is():
    meter, fresh = WorkMeter(), WorkMeter()
    feed(meter, 40, frame(0.1, cuda_launches=100.0))
    fresh.load(meter.state())
    for one in (meter, fresh):
        feed(one, 9, frame(0.15, cuda_launches=170.0))
    assert fresh.ratios() == meter.ratios()
    assert fresh.ratios()["cuda_launches"] > 1.2
