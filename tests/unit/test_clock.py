import time

from eacgm.producers import clock


def test_monotonic_time_plus_the_offset_is_utc():
    before = time.time_ns()
    reading = clock.read()
    after = time.time_ns()
    assert before <= reading.monotonic_ns + reading.offset_ns <= after
    assert reading.error_ns is None or reading.error_ns >= 0
