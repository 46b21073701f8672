"""Calls of a known library on the real kernel: a known number of calls gives that number."""

from __future__ import annotations

import time

import pytest

pytestmark = pytest.mark.ebpf


def row(observation, function):
    """The one row of a function, as a dict; its histogram as {bucket: count}."""
    calls = observation.calls
    at = calls.function.index(function)
    names = ("count", "errors", "payload_bytes", "total_ns", "max_ns", "open_count", "open_age_ns")
    found = {name: int(getattr(calls, name)[at]) for name in names}
    mine = calls.histogram_row == at
    found["histogram"] = dict(
        zip(calls.histogram_bucket[mine].tolist(), calls.histogram_count[mine].tolist(), strict=True)
    )
    return found


def collect(tracer, driver):
    return tracer.collect().observations[driver.pid]


@pytest.fixture
def watched(tracer, driver):
    one = driver()
    tracer.watch(one.pid)
    tracer.collect()
    yield one
    tracer.unwatch(one.pid)


def test_23_calls_give_23_calls_with_their_errors_bytes_and_times(any_tracer, driver):
    one = driver()
    coverage = {layer.layer: layer for layer in any_tracer.watch(one.pid)}
    any_tracer.collect()

    one.run("for i in range(23): lib.work(3000, ctypes.c_size_t(1000 + i), 7 if i % 5 == 0 else 0)")
    found = row(collect(any_tracer, one), "work")

    assert coverage["pytorch"].probes == 6  # `work` has two names and one address
    assert found["count"] == 23
    assert found["errors"] == 5
    assert found["payload_bytes"] == sum(1000 + i for i in range(23))
    assert found["total_ns"] >= 23 * 3_000_000
    assert 3_000_000 <= found["max_ns"] <= found["total_ns"]
    assert sum(found["histogram"].values()) == 23
    assert min(found["histogram"]) >= 21  # no call took less than 3 ms, and 2**21 ns is 2.1 ms
    assert found["open_count"] == 0

    again = row(collect(any_tracer, one), "work")
    assert (again["count"], again["total_ns"], again["max_ns"], again["histogram"]) == (0, 0, 0, {})
    any_tracer.unwatch(one.pid)


def test_recursive_calls_count_each(tracer, watched):
    watched.run("lib.recurse(5)")
    found = row(collect(tracer, watched), "recurse")
    assert found["count"] == 5
    assert found["max_ns"] >= 5 * 2_000_000
    assert found["total_ns"] >= (5 + 4 + 3 + 2 + 1) * 2_000_000


def test_nested_calls_of_different_functions_are_both_seen(tracer, watched):
    watched.run("for i in range(7): lib.outer(1000)")
    observation = collect(tracer, watched)
    outer, inner = row(observation, "outer"), row(observation, "work")
    assert (outer["count"], inner["count"]) == (7, 7)
    assert outer["total_ns"] > inner["total_ns"] + 7 * 1_000_000


def test_a_call_that_does_not_return_is_in_flight_with_a_growing_age(tracer, watched):
    watched.start("lib.forever()")
    time.sleep(0.3)
    first = row(collect(tracer, watched), "forever")
    time.sleep(0.3)
    second = row(collect(tracer, watched), "forever")
    assert (first["count"], first["open_count"]) == (0, 1)
    assert (second["count"], second["open_count"]) == (0, 1)
    assert first["open_age_ns"] >= 100_000_000
    assert second["open_age_ns"] >= first["open_age_ns"] + 300_000_000


def test_a_function_left_by_a_jump_is_not_in_flight_for_ever(tracer, watched):
    watched.run("lib.catch_escape()")
    watched.run("lib.work(100, 0, 0)")
    observation = collect(tracer, watched)
    assert row(observation, "work")["count"] == 1
    assert "escape" not in observation.calls.function


def test_the_thread_that_ends_within_a_call_leaves_nothing_in_flight(tracer, watched):
    watched.run("t = threading.Thread(target=lib.forever, daemon=True); t.start(); time.sleep(0.1)")
    assert row(collect(tracer, watched), "forever")["open_count"] == 1
    # the thread leaves by a signal's handler, as pthread_cancel does it
    watched.run(
        "libc = ctypes.CDLL(None); libc.pthread_cancel(ctypes.c_ulong(t.ident)); time.sleep(0.2)",
    )
    observation = collect(tracer, watched)
    assert "forever" not in observation.calls.function or row(observation, "forever")["open_count"] == 0


def test_calls_of_many_threads_are_all_counted(tracer, watched):
    watched.run(
        "ts = [threading.Thread(target=lambda: [lib.work(0, 1, 0) for _ in range(500)]) for _ in range(8)];"
        " [t.start() for t in ts]; [t.join() for t in ts]"
    )
    found = row(collect(tracer, watched), "work")
    assert (found["count"], found["payload_bytes"], found["open_count"]) == (4000, 4000, 0)


def test_an_unwatched_process_does_not_count(tracer, driver, watched):
    other = driver()
    other.run("lib.work(0, 1, 0)")
    watched.run("lib.work(0, 1, 0)")
    assert row(collect(tracer, watched), "work")["count"] == 1
    tracer.watch(other.pid)
    assert "work" not in collect(tracer, other).calls.function
    tracer.unwatch(other.pid)


def test_a_library_loaded_later_is_attached_by_refresh(tracer, driver, probed_library):
    one = driver(library="")
    before = {layer.layer: layer.status for layer in tracer.watch(one.pid)}
    one.run(f"lib = ctypes.CDLL({str(probed_library)!r})")
    after = {layer.layer: layer.status for layer in tracer.refresh(one.pid)}
    one.run("for i in range(23): lib.work(0, 0, 0)")
    assert (before["pytorch"], after["pytorch"]) == ("absent", "attached")
    assert row(collect(tracer, one), "work")["count"] == 23
    tracer.unwatch(one.pid)


def test_a_single_stepped_function_is_refused_with_the_reason_and_the_others_are_not(tracer, driver):
    one = driver()
    coverage = {layer.layer: layer for layer in tracer.watch(one.pid)}
    assert coverage["cuda"].status == "failed"
    assert "lean" in coverage["cuda"].reason
    assert "single-stepped" in coverage["cuda"].reason
    assert coverage["pytorch"].status == "attached"
    tracer.unwatch(one.pid)


def test_a_mapped_file_that_is_no_library_is_named_and_the_others_are_attached(tracer, driver, tmp_path):
    fake = tmp_path / "libprobed_fake.so"
    fake.write_bytes(b"no library" * 1000)
    one = driver()
    one.run(
        f"import mmap; f = open({str(fake)!r}, 'rb');"
        " m = mmap.mmap(f.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)"
    )
    coverage = {layer.layer: layer for layer in tracer.watch(one.pid)}
    assert coverage["pytorch"].status == "partial"
    assert "libprobed_fake.so" in coverage["pytorch"].reason
    assert "ELF" in coverage["pytorch"].reason
    one.run("lib.work(0, 0, 0)")
    assert row(collect(tracer, one), "work")["count"] == 1
    tracer.unwatch(one.pid)


def test_a_library_deleted_while_mapped_is_still_attached(tracer, driver, probed_library, tmp_path):
    copy = tmp_path / "libprobed_copy.so"
    copy.write_bytes(probed_library.read_bytes())
    one = driver(library=copy)
    copy.unlink()
    tracer.watch(one.pid)
    one.run("for i in range(23): lib.work(0, 0, 0)")
    assert row(collect(tracer, one), "work")["count"] == 23
    tracer.unwatch(one.pid)
