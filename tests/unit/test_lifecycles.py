import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from eacgm.producers.lifecycles import Lifecycles, exit_code
from eacgm.producers.maps import LIFECYCLE


class Records:
    """Hands out what was put in, as a ring does."""

    def __init__(self, *batches):
        self.batches = list(batches)

    def drain(self):
        records = np.zeros(0, dtype=LIFECYCLE)
        if self.batches:
            records = np.array([(t, kind, pid, parent, 0) for t, kind, pid, parent in self.batches.pop(0)], LIFECYCLE)
        return records


@pytest.fixture
def ended():
    """Return a function that starts a process, lets it end, and gives its pid and pidfd; not yet reaped."""
    children, pidfds = [], []

    def start(program, sign=None):
        child = subprocess.Popen([sys.executable, "-c", program])
        children.append(child)
        pidfds.append(os.pidfd_open(child.pid))
        if sign is not None:
            child.send_signal(sign)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        return child.pid, pidfds[-1]

    yield start
    for child, pidfd in zip(children, pidfds, strict=True):
        child.wait()
        os.close(pidfd)


def test_an_exit_code_is_read_before_the_process_is_reaped(ended):
    assert exit_code(*ended("raise SystemExit(7)")) == 7
    assert exit_code(*ended("import time; time.sleep(60)", signal.SIGKILL)) == -9


def test_a_running_process_has_no_exit_code():
    pidfd = os.pidfd_open(os.getpid())
    assert exit_code(os.getpid(), pidfd) is None
    os.close(pidfd)


def test_forks_and_execs_come_before_exits_in_utc(ended):
    pid, pidfd = ended("raise SystemExit(3)")
    found = Lifecycles(Records([(5, 3, pid, 0), (6, 1, 40, 30), (7, 2, 41, 0)])).collect(1000, {pid: pidfd})
    assert [(one.kind, one.pid, one.time_ns, one.parent, one.exit_code) for one in found] == [
        ("fork", 40, 1006, 30, None),
        ("exec", 41, 1007, 0, None),
        ("exit", pid, 1005, 0, 3),
    ]


def test_an_exit_waits_for_its_code_only_so_long():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    pidfd = os.pidfd_open(child.pid)
    lifecycles = Lifecycles(Records([(5, 3, child.pid, 0)]))
    # reported, but its code is not to be had yet
    assert [len(lifecycles.collect(0, {child.pid: pidfd})) for _ in range(4)] == [0, 0, 1, 0]
    child.kill()
    child.wait()
    os.close(pidfd)


def test_an_exit_of_nobody_we_watch_is_told_at_once():
    (one,) = Lifecycles(Records([(5, 3, 4_000_000, 0)])).collect(0, {})
    assert (one.kind, one.exit_code) == ("exit", None)
