"""The kernel's log on the real /dev/kmsg."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eacgm.producers.kernel_log import KernelLog

#: the kernel logs a process that dies so (debug.exception-trace)
CRASH = "import ctypes, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); ctypes.string_at(0)"
SWITCH = Path("/proc/sys/debug/exception-trace")


def wait_for(log, wanted):
    until = time.monotonic() + 10
    while time.monotonic() < until:
        messages = log.messages()
        if any(wanted in message for message in messages):
            return messages
        time.sleep(0.01)
    raise AssertionError(f"{wanted} was not logged")


@pytest.mark.skipif(
    os.geteuid() != 0 or not SWITCH.exists() or SWITCH.read_text().strip() == "0",
    reason="needs root, and debug.exception-trace",
)
def test_what_the_kernel_logs_from_now_on_is_read_and_what_user_space_writes_is_not():
    log = KernelLog("")
    assert log.failure is None
    Path("/dev/kmsg").write_text("feigned by a test: segfault at 0\n")
    child = subprocess.Popen([sys.executable, "-S", "-c", CRASH])
    assert child.wait() == -signal.SIGSEGV
    messages = wait_for(log, f"[{child.pid}]: segfault at 0")
    assert not [message for message in messages if "feigned" in message]
    log.close()
    assert log.messages() == []


def test_a_log_that_cannot_be_read_says_why(tmp_path):
    log = KernelLog(str(tmp_path))
    assert log.failure == "kernel log: No such file or directory"
    assert log.messages() == []
