"""Orders to stop, given by signals at any moment."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from eacgm.cli.stopping import stopped_by_signals

#: signals that come all the time, also while the main thread begins or ends a wait
STORM = """
import signal
from eacgm.cli.stopping import stopped_by_signals
with stopped_by_signals() as stop:
    signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGTERM))
    signal.setitimer(signal.ITIMER_REAL, 0.00005, 0.00005)
    for _ in range(100_000):
        stop.wait(0.0001)
    signal.setitimer(signal.ITIMER_REAL, 0)
print(stop.is_set())
"""


@pytest.fixture
def heard():
    """SIGHUP as a terminal leaves it: under nohup it is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_wait_at_once_and_later_ones_too(sign):
    before = signal.getsignal(sign)
    with stopped_by_signals() as stop:
        assert not stop.wait(0.01)
        timer = threading.Timer(0.1, os.kill, (os.getpid(), sign))
        timer.start()
        begun = time.monotonic()
        assert stop.wait(30)
        assert stop.wait(30)
        assert time.monotonic() - begun < 10
        timer.join()
    assert stop.is_set()
    assert signal.getsignal(sign) is before


@pytest.mark.usefixtures("heard")
def test_what_nohup_has_ignored_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stopped_by_signals() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert not stop.wait(0.1)


def test_whenever_a_signal_comes_the_main_thread_never_waits_for_itself():
    done = subprocess.run([sys.executable, "-c", STORM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True\n"
