"""Collectives one by one: each call a record with its group, number, bytes and times; what is lost is counted."""

from __future__ import annotations

import time

import numpy as np
import pytest

from eacgm.producers.tracer import Tracer

pytestmark = pytest.mark.ebpf

_SHARE = "lib.share(None, None, ctypes.c_size_t({count}), {datatype}, 0, ctypes.c_void_p({group}))"


def share(count=1, datatype=7, group=0x1000):
    return _SHARE.format(count=count, datatype=datatype, group=group)


@pytest.fixture
def watched(tracer, driver):
    one = driver()
    tracer.watch(one.pid)
    tracer.collect()
    yield one
    tracer.unwatch(one.pid)


def test_each_call_is_a_record_with_its_group_number_bytes_and_result(tracer, watched):
    start_ns = time.time_ns()
    watched.run(f"for i in range(23): {share(count=100, datatype=7, group=0x1000)}")  # ncclFloat32: 4 bytes
    watched.run(share(count=50, datatype=9, group=0x2000))  # ncclBfloat16: 2 bytes
    watched.run(share(count=10, datatype=8, group=0))  # fails with 4
    end_ns = time.time_ns()
    observation = tracer.collect().observations[watched.pid]
    seen = observation.collectives

    assert seen.operation == ["share"] * 25
    assert seen.communicator == ["test/0"] * 23 + ["test/1", "test"]
    assert seen.call_sequence.tolist() == [*range(23), 0, 0]
    assert seen.payload_bytes.tolist() == [400] * 23 + [100, 80]
    assert seen.return_code.tolist() == [0] * 24 + [4]
    durations = seen.call_end_ns - seen.call_start_ns
    assert (durations[:23] >= 100_000).all()
    # one clock: the records lie within what UTC said before and after
    assert start_ns <= seen.call_start_ns[0]
    assert seen.call_end_ns[-1] <= end_ns
    assert (np.diff(seen.call_start_ns) > 0).all()
    calls = observation.calls
    at = calls.function.index("share")
    assert (calls.count[at], calls.errors[at], calls.payload_bytes[at]) == (25, 1, 23 * 400 + 180)


def test_numbers_go_on_in_the_next_interval(tracer, watched):
    watched.run(share())
    first = tracer.collect().observations[watched.pid].collectives
    watched.run(share())
    second = tracer.collect().observations[watched.pid].collectives
    assert (first.call_sequence.tolist(), second.call_sequence.tolist()) == ([0], [1])


def test_a_collective_in_flight_is_told_with_its_number_and_start(tracer, watched):
    watched.run(share())
    watched.start(share(count=700_000))
    time.sleep(0.3)
    during = tracer.collect().observations[watched.pid].collectives
    watched.wait()
    after = tracer.collect().observations[watched.pid].collectives
    assert during.open_operation == ["share"]
    assert during.open_communicator == ["test/0"]
    assert during.open_call_sequence.tolist() == [1]
    assert after.open_operation == []
    assert after.call_sequence.tolist() == [1]
    # UTC is measured anew each interval
    assert after.call_start_ns[0] == pytest.approx(during.open_call_start_ns[0], abs=1_000_000)


def test_what_finds_no_room_in_the_ring_is_counted_as_lost(driver, probes):
    one = driver()
    with Tracer(probes, record_pages=1) as small:
        small.watch(one.pid)
        small.collect()
        one.run(f"for i in range(500): {share()}")
        observation = small.collect().observations[one.pid]
        assert 0 < len(observation.collectives.operation) < 500
        assert len(observation.collectives.operation) + observation.lost == 500
        at = observation.calls.function.index("share")
        assert observation.calls.count[at] == 500
        one.run(share())
        later = small.collect().observations[one.pid]
        assert (len(later.collectives.operation), later.lost) == (1, 0)
        assert later.collectives.call_sequence.tolist() == [500]
