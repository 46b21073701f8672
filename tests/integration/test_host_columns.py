"""The scheduler's and TCP's view of a process that does known things."""

from __future__ import annotations

import os
import signal
import time

import pytest

pytestmark = pytest.mark.ebpf

_SPIN = "end = time.process_time() + {seconds}\nwhile time.process_time() < end: pass"


def spin(seconds):
    return f"exec({_SPIN.format(seconds=seconds)!r})"


@pytest.fixture
def watched(tracer, driver):
    one = driver()
    tracer.watch(one.pid)
    tracer.collect()
    yield one
    tracer.unwatch(one.pid)


def on_cpu(seconds):
    """What the scheduler counts for that much CPU time: not less, but more where a hypervisor steals some of it."""
    return pytest.approx(seconds * 1.25, abs=seconds * 0.35)


def host(tracer, one):
    return tracer.collect().observations[one.pid].host


def test_cpu_seconds_are_what_the_process_clock_says(tracer, watched):
    watched.run(spin(0.5))
    seen = host(tracer, watched)
    assert seen.cpu_seconds == on_cpu(0.5)
    assert seen.threads == 1
    assert seen.stopped is False


def test_a_thread_asleep_for_long_is_asleep_in_every_interval(tracer, watched):
    watched.start("time.sleep(1.5)")
    time.sleep(0.2)
    tracer.collect()
    for _ in range(2):
        before = time.monotonic()
        time.sleep(0.4)
        seen = host(tracer, watched)
        assert seen.off_cpu_seconds == pytest.approx(time.monotonic() - before, abs=0.1)
    watched.wait()


def test_a_runnable_thread_without_a_cpu_waits_in_the_run_queue(tracer, driver, watched):
    rival = driver()
    cpu = min(os.sched_getaffinity(0))
    for one in (watched, rival):
        os.sched_setaffinity(one.pid, {cpu})
    rival.start(spin(0.6))
    watched.run(spin(0.5))
    seen = host(tracer, watched)
    rival.wait()
    assert seen.cpu_seconds == on_cpu(0.5)
    assert seen.run_queue_wait_seconds > 0.2


def test_a_stopped_process_is_told_at_once_and_for_how_long(tracer, watched):
    os.kill(watched.pid, signal.SIGSTOP)
    time.sleep(0.5)
    during = host(tracer, watched)
    os.kill(watched.pid, signal.SIGCONT)
    time.sleep(0.2)
    after = host(tracer, watched)
    assert during.stopped is True
    assert during.stopped_seconds == pytest.approx(0.5, abs=0.1)
    assert after.stopped is False


def test_the_step_thread_is_blocked_only_outside_traced_calls(tracer, watched):
    watched.run("lib.beat(1000)")
    assert host(tracer, watched).step_thread_blocked_seconds is None  # seen for the first time: no interval yet
    watched.run(f"lib.beat(400000); time.sleep(0.2); {spin(0.1)}")
    seen = host(tracer, watched)
    assert seen.step_thread_blocked_seconds == pytest.approx(0.2, abs=0.15)
    assert seen.step_thread_cpu_seconds == on_cpu(0.1)


def test_another_thread_does_not_count_for_the_step_thread(tracer, watched):
    watched.run("lib.beat(1000)")
    tracer.collect()
    watched.run(f"t = threading.Thread(target=lambda: {spin(0.3)}); t.start(); lib.beat(500000); t.join()")
    seen = host(tracer, watched)
    assert seen.cpu_seconds > 0.25
    assert seen.step_thread_cpu_seconds < 0.1


def test_the_time_of_threads_that_ended_is_not_lost(tracer, watched):
    watched.run(f"ts = [threading.Thread(target=lambda: {spin(0.1)}) for _ in range(3)]")
    watched.run("[(t.start(), t.join()) for t in ts]")
    while len(os.listdir(f"/proc/{watched.pid}/task")) > 1:  # a joined thread may still be on its way out
        time.sleep(0.01)
    time.sleep(0.2)
    seen = host(tracer, watched)
    assert seen.cpu_seconds == on_cpu(0.3)
    assert seen.threads == 1


def test_tcp_bytes_are_those_of_the_process_that_moved_them(tracer, driver, watched):
    receiver = driver()
    tracer.watch(receiver.pid)
    receiver.run("s = socket.create_server(('127.0.0.1', 0))")
    port = receiver.run("print(s.getsockname()[1])")
    receiver.start("c, _ = s.accept(); n = sum(iter(lambda: len(c.recv(65536)), 0)); print(n)")
    watched.run(f"c = socket.create_connection(('127.0.0.1', {port})); c.sendall(b'x' * 5_000_000); c.close()")
    assert receiver.wait() == "5000000"
    seen = tracer.collect().observations
    assert seen[watched.pid].host.net_sent_bytes == 5_000_000
    assert seen[watched.pid].host.net_received_bytes == 0
    assert seen[receiver.pid].host.net_received_bytes == 5_000_000
    tracer.unwatch(receiver.pid)
