"""Processes that come and go."""

from __future__ import annotations

import os
import signal
import time

import pytest

from eacgm.errors import ProbeError

pytestmark = pytest.mark.ebpf


def exits(tracer, pid):
    """Collect until the process's end is told (three collections at most)."""
    for _ in range(3):
        found = [item for item in tracer.collect().lifecycles if (item.kind, item.pid) == ("exit", pid)]
        if found:
            return found
        time.sleep(0.05)
    return []


@pytest.mark.parametrize("reaped", [True, False])
@pytest.mark.parametrize(
    ("line", "code"),
    [("os._exit(7)", 7), ("os._exit(0)", 0), ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL)],
)
def test_an_exit_is_told_once_with_its_code(tracer, driver, line, code, reaped):
    one = driver()
    tracer.watch(one.pid)
    tracer.collect()
    before_ns = time.time_ns()
    one.start(line)
    os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
    if reaped:
        one.process.wait()
    found = exits(tracer, one.pid)
    assert [item.exit_code for item in found] == [code]
    assert before_ns - 1_000_000 <= found[0].time_ns <= time.time_ns() + 1_000_000
    assert exits(tracer, one.pid) == []
    tracer.unwatch(one.pid)
    assert one.pid not in tracer.watched


def test_what_a_process_did_before_its_end_is_still_collected(tracer, driver):
    one = driver()
    tracer.watch(one.pid)
    tracer.collect()
    one.start("for i in range(23): lib.work(0, 0, 0)\n")
    one.start("os._exit(0)")
    one.process.wait()
    calls = tracer.collect().observations[one.pid].calls
    assert calls.count[calls.function.index("work")] == 23
    tracer.unwatch(one.pid)
    assert one.pid not in tracer.collect().observations


def test_a_fork_is_told_with_its_parent_and_threads_are_not_forks(tracer, driver):
    one = driver()
    tracer.watch(one.pid)
    tracer.collect()
    one.run("ts = [threading.Thread(target=time.sleep, args=(0.01,)) for _ in range(5)]")
    one.run("[t.start() for t in ts]; [t.join() for t in ts]")
    child = int(one.run("pid = os.fork(); pid or (lib.work(0, 0, 0), time.sleep(30), os._exit(0)); print(pid)"))
    forks = [item for item in tracer.collect().lifecycles if item.kind == "fork"]
    assert [(item.pid, item.parent) for item in forks] == [(child, one.pid)]
    tracer.watch(child)
    os.kill(child, signal.SIGKILL)
    one.run("os.waitpid(pid, 0)")
    assert [item.exit_code for item in exits(tracer, child)] == [-signal.SIGKILL]
    tracer.unwatch(child)
    tracer.unwatch(one.pid)


def test_an_exec_is_told(tracer, driver):
    tracer.collect()
    one = driver()
    assert one.pid in [item.pid for item in tracer.collect().lifecycles if item.kind == "exec"]


def test_watching_a_process_that_is_not_there_is_refused_in_one_line(tracer, driver):
    one = driver()
    one.close()
    with pytest.raises(ProbeError, match=f"process {one.pid} cannot be watched") as caught:
        tracer.watch(one.pid)
    assert "\n" not in str(caught.value)
