"""Nothing stays behind: a probe is a breakpoint in the process's text, and each test looks at that very byte."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from eacgm.producers.tracer import Tracer

pytestmark = pytest.mark.ebpf

_ENDBR64_BYTES = 4
_BREAKPOINT = "cc"
_AGENT = """
import runpy, sys, time
from eacgm.producers.tracer import Tracer
probes = runpy.run_path(sys.argv[1])['PROBES']
tracer = Tracer(probes)
tracer.watch(int(sys.argv[2]))
print('watching', flush=True)
time.sleep(60)
"""


def first_byte(one):
    return one.run(f"print(ctypes.string_at(ctypes.cast(lib.work, ctypes.c_void_p).value + {_ENDBR64_BYTES}, 1).hex())")


def becomes(one, byte):
    deadline = time.monotonic() + 10
    while first_byte(one) != byte:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_unwatching_the_last_process_of_a_library_takes_its_probes_off(tracer, driver):
    one, two = driver(), driver()
    before = first_byte(one)
    assert before != _BREAKPOINT
    tracer.watch(one.pid)
    tracer.watch(two.pid)
    assert first_byte(one) == _BREAKPOINT
    tracer.unwatch(one.pid)
    assert first_byte(one) == _BREAKPOINT  # the other one still needs it
    tracer.unwatch(two.pid)
    assert becomes(one, before)
    one.run("lib.work(0, 0, 0)")


@pytest.mark.parametrize("multi", [True, False])
def test_closing_the_tracer_detaches_while_a_call_is_in_flight(driver, probes, multi):
    one = driver()
    before = first_byte(one)
    descriptors = len(os.listdir("/proc/self/fd"))
    with Tracer(probes, uprobe_multi=multi) as tracer:
        tracer.watch(one.pid)
        one.start("print(lib.work(500000, 0, 42))")
        time.sleep(0.1)
    assert one.wait() == "42"
    assert becomes(one, before)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_killing_the_agent_detaches(driver):
    one = driver()
    before = first_byte(one)
    conftest = os.path.join(os.path.dirname(__file__), "conftest.py")
    agent = subprocess.Popen([sys.executable, "-c", _AGENT, conftest, str(one.pid)], stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    try:
        assert agent.stdout.readline() == "watching\n"
        assert first_byte(one) == _BREAKPOINT
    finally:
        os.kill(agent.pid, signal.SIGKILL)
        agent.communicate()
    assert becomes(one, before)
    assert one.run("print(lib.work(0, 0, 42))") == "42"
