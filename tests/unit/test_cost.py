"""What the agent costs."""

import time

from eacgm.producers.cost import CostMeter


def test_work_shows_as_cpu_seconds_and_as_a_share_since_the_last_reading():
    meter = CostMeter()
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    busy = meter.read()
    time.sleep(0.2)
    idle = meter.read()
    assert busy.cpu_seconds >= 0.2
    assert busy.cpu_ratio > idle.cpu_ratio
    assert idle.cpu_ratio < 0.5
    assert idle.cpu_seconds >= busy.cpu_seconds
    assert busy.rss_bytes is not None
    assert busy.rss_bytes > 1e6
