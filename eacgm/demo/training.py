"""The demo's job as it runs: its data source, its ranks, their logs, and the guard that cleans up after them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from eacgm.demo.interpreters import Interpreter
from eacgm.errors import EacgmError

JOB = Path(__file__).with_name("job.py")
_PROGRESS = re.compile(r"step (\d+) loss ([0-9.]+) ([0-9.]+) ms/step\n")
#: what a rank inherits from the demo's environment; nothing else of it reaches the job
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "TMPDIR")


def free_port() -> int:
    """Return a TCP port of the loopback that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


class TrainingJob:
    """Starts and ends the job; a context manager, so that nothing of it stays behind.

    ``logs`` is an existing folder; rank ``r`` writes ``rank-r.log`` there. ``arguments`` go to ``eacgm.demo.job``.
    """

    def __init__(
        self, interpreter: Interpreter, logs: Path, *, n_ranks: int = 4, seed: int = 0, arguments: tuple[str, ...] = ()
    ) -> None:
        self._interpreter = interpreter
        self._logs = logs
        self._n_ranks = n_ranks
        self._seed = seed
        self._arguments = arguments
        self._master_port = free_port()
        self._guard: subprocess.Popen[str] | None = None
        self._source: subprocess.Popen[str] | None = None
        self._ranks: list[subprocess.Popen[bytes]] = []

    @property
    def name(self) -> str:
        """The job's name as the agent finds it: the rendezvous address."""
        return f"127.0.0.1:{self._master_port}"

    @property
    def pids(self) -> list[int]:
        """The ranks' processes, in the order of the ranks."""
        return [rank.pid for rank in self._ranks]

    def __enter__(self) -> TrainingJob:
        """Start the guard, the data source and the ranks."""
        try:
            self._guard = self._start_module("eacgm.demo.guard", stdout=None)
            self._tell(self._guard, f"folder {self._logs}")
            self._source = self._start_module("eacgm.demo.source", "--seed", str(self._seed), stdout=subprocess.PIPE)
            self._protect(self._source.pid)
            assert self._source.stdout is not None
            port = self._source.stdout.readline().strip()
            if not port:
                raise EacgmError("the demo's data source did not start; expected a port; see its error above")
            for rank in range(self._n_ranks):
                self._ranks.append(self._start_rank(rank, f"127.0.0.1:{port}"))
                self._protect(self._ranks[-1].pid)
        except BaseException:
            self.close()
            raise
        return self

    def _start_module(self, module: str, *arguments: str, stdout: int | None) -> subprocess.Popen[str]:
        # A session of its own: Ctrl-C in the terminal is the demo's to handle, in its own order.
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=stdout,
            text=True,
            start_new_session=True,
        )

    def _start_rank(self, rank: int, data: str) -> subprocess.Popen[bytes]:
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ} | {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self._n_ranks),
            "LOCAL_WORLD_SIZE": str(self._n_ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self._master_port),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }
        with open(self._logs / f"rank-{rank}.log", "wb") as log:
            return subprocess.Popen(
                [self._interpreter.path, str(JOB), "--data", data, *self._arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._logs,
                start_new_session=True,
            )

    def _protect(self, pid: int) -> None:
        self._tell(self._guard, f"process {pid}")

    def announce_cgroup(self, path: Path) -> None:
        """Have the guard remove this cgroup, should the demo not live to do so."""
        self._tell(self._guard, f"cgroup {path}")

    def delay_data(self, rank: int, seconds: float) -> None:
        """Make every later batch of ``rank`` late by ``seconds``; 0 ends it."""
        self._tell(self._source, f"delay {rank} {seconds}")

    @staticmethod
    def _tell(process: subprocess.Popen[str] | None, line: str) -> None:
        if process is None or process.stdin is None or process.stdin.closed:
            return
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            # It has ended, so there is nothing left to steer.
            return

    def progress(self) -> tuple[int, float] | None:
        """Return rank 0's last told step and loss; None before the first."""
        told = self._told()
        return (int(told[-1][0]), float(told[-1][1])) if told else None

    def step_times_ms(self) -> list[float]:
        """Return the step times that rank 0 has told so far, in milliseconds."""
        return [float(step_ms) for _, _, step_ms in self._told()]

    def _told(self) -> list[tuple[str, str, str]]:
        try:
            return _PROGRESS.findall((self._logs / "rank-0.log").read_text(errors="replace"))
        except OSError:
            return []

    def check(self) -> None:
        """Raise ``EacgmError`` with the rank's own last words if a rank has ended."""
        for rank, process in enumerate(self._ranks):
            if process.poll() is not None:
                lines = (self._logs / f"rank-{rank}.log").read_text(errors="replace").strip().splitlines()
                said = lines[-1] if lines else "nothing"
                raise EacgmError(f"rank {rank} of the demo's job ended (status {process.returncode}); it said: {said}")

    def close(self) -> None:
        """End the job and wait for all its processes; harmless if it has ended."""
        for process in (self._source, *self._ranks):
            if process is not None and process.poll() is None:
                for sign in (signal.SIGKILL, signal.SIGCONT):
                    process.send_signal(sign)
        if self._guard is not None and self._guard.stdin is not None:
            # The pipe may be broken already; either way the guard sees its end, cleans up and ends.
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.close()
        for process in (self._source, *self._ranks, self._guard):
            if process is not None:
                process.wait(timeout=20)
        if self._source is not None:
            for pipe in (self._source.stdin, self._source.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the job."""
        self.close()

    def wait_for_step(self, step: int, timeout_seconds: float) -> None:
        """Wait until rank 0 has told ``step``; raises ``EacgmError`` if a rank ends or the time is over."""
        deadline = time.monotonic() + timeout_seconds
        while (told := self.progress()) is None or told[0] < step:
            self.check()
            if time.monotonic() > deadline:
                raise EacgmError(
                    f"the demo's job did not reach step {step} in {timeout_seconds:.0f} s; see {self._logs}"
                )
            time.sleep(0.1)
