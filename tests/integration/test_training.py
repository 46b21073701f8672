"""The demo's job under a real torch: it trains, and ends with everything that belongs to it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eacgm.demo.interpreters import Interpreter, find
from eacgm.demo.training import TrainingJob
from eacgm.errors import EacgmError, UnsupportedError

FEW = ("--print-every", "5", "--batch", "64")


@pytest.fixture(scope="module")
def interpreter() -> Interpreter:
    try:
        return find()
    except UnsupportedError as error:
        pytest.skip(str(error))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.torch
@pytest.mark.slow
def test_loss_falls_and_no_process_stays_behind(interpreter, tmp_path):
    with TrainingJob(interpreter, tmp_path, n_ranks=2, arguments=FEW) as job:
        job.wait_for_step(5, timeout_seconds=90)
        first = job.progress()
        job.wait_for_step(60, timeout_seconds=90)
        last = job.progress()
        pids = job.pids
    assert last[1] < first[1]
    assert not any(alive(pid) for pid in pids)


@pytest.mark.torch
@pytest.mark.slow
def test_killed_demo_leaves_no_rank_behind_not_even_a_stopped_one(interpreter, tmp_path):
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from eacgm.demo.interpreters import Interpreter\n"
        "from eacgm.demo.training import TrainingJob\n"
        f"with TrainingJob(Interpreter({interpreter.path!r}, ''), Path({str(tmp_path)!r}), n_ranks=2) as job:\n"
        "    print(*job.pids, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as demo:
        pids = [int(word) for word in demo.stdout.readline().split()]
        assert len(pids) == 2
        os.kill(pids[1], signal.SIGSTOP)
        demo.kill()
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "ranks outlived the demo"
        time.sleep(0.1)


def test_rank_that_ends_is_told_with_its_last_words(tmp_path):
    program = tmp_path / "broken-python"
    program.write_text("#!/bin/sh\necho no torch today\nexit 3\n")
    program.chmod(0o755)
    with (
        pytest.raises(EacgmError, match=r"rank 0 .* \(status 3\); it said: no torch today"),
        TrainingJob(Interpreter(str(program), "2.0"), tmp_path, n_ranks=1) as job,
    ):
        job.wait_for_step(1, timeout_seconds=20)
