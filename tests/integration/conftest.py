"""A known library, processes that call it, and tracers: what the tests on the real kernel need."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from eacgm.demo.interpreters import find
from eacgm.errors import UnsupportedError
from eacgm.producers.probe import Probe
from eacgm.producers.programs import check_privileges
from eacgm.producers.toolchain import find_bcc, tracefs
from eacgm.producers.tracer import Tracer

_DRIVER = """
import ctypes, gc, os, signal, socket, sys, threading, time
lib = ctypes.CDLL(sys.argv[1]) if sys.argv[1] else None
gc.disable()
print('ready', flush=True)
for line in sys.stdin:
    exec(line)
    print('done', flush=True)
"""

LIBRARY = r"libprobed.*\.so"
PROBES = (
    Probe("pytorch", LIBRARY, "work(_alias)?", "work", errors="nonzero", bytes_argument=2),
    Probe("pytorch", LIBRARY, "recurse", "recurse"),
    Probe("pytorch", LIBRARY, "outer", "outer"),
    Probe("pytorch", LIBRARY, "forever", "forever"),
    Probe("pytorch", LIBRARY, "escape", "escape"),
    Probe("pytorch", LIBRARY, "beat", "beat", "step"),
    Probe("collective", LIBRARY, "share", "share", "collective", "nonzero", 3, 4, 6, choice=("test", 0)),
    Probe("cuda", LIBRARY, "lean", "lean"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs eBPF where it is not to be had, with the reason."""
    marked = [item for item in items if item.get_closest_marker("ebpf")]
    if not marked:
        return
    try:
        check_privileges()
        tracefs()
        find_bcc()
    except UnsupportedError as error:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=str(error)))


class Driver:
    """A process that runs lines of Python on demand; ``lib`` is the known library in it."""

    def __init__(self, library: str, interpreter: str, prefix: Sequence[str] = ()) -> None:
        """``prefix`` is a command that executes the rest of its arguments in its place."""
        self.process = subprocess.Popen(
            [*prefix, interpreter, "-S", "-c", _DRIVER, library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid
        self.wait()

    def start(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait(self) -> str:
        """Return what the line printed before it was done."""
        assert self.process.stdout is not None
        printed = []
        while (word := self.process.stdout.readline()) not in ("done\n", "ready\n"):
            assert word, "the driver has ended"
            printed.append(word)
        return "".join(printed).strip()

    def run(self, line: str) -> str:
        self.start(line)
        return self.wait()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="session")
def probed_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("probed") / "libprobed.so"
    source = Path(__file__).with_name("probed.c")
    # a frame pointer makes every function begin with push; endbr64 comes before it, as distributions build
    flags = [
        "-O1",
        "-fno-omit-frame-pointer",
        "-fno-optimize-sibling-calls",
        "-fno-shrink-wrap",
        "-fcf-protection=branch",
    ]
    subprocess.run(["gcc", *flags, "-shared", "-fPIC", "-o", path, source], check=True)
    return path


@pytest.fixture
def driver(probed_library: Path) -> Iterator[Callable[..., Driver]]:
    """Start drivers; they end with the test."""
    started: list[Driver] = []

    def start(
        library: Path | str = probed_library, interpreter: str = sys.executable, prefix: Sequence[str] = ()
    ) -> Driver:
        started.append(Driver(os.fspath(library), interpreter, prefix))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture(scope="session")
def probes() -> tuple[Probe, ...]:
    """The table for the known library."""
    return PROBES


@pytest.fixture(scope="module", params=[True, False], ids=["uprobe_multi", "perf_event"])
def any_tracer(request: pytest.FixtureRequest) -> Iterator[Tracer]:
    """A tracer that attaches in each of the two ways."""
    with Tracer(PROBES, uprobe_multi=request.param) as tracer:
        yield tracer


@pytest.fixture(scope="session")
def tracer() -> Iterator[Tracer]:
    with Tracer(PROBES) as tracer:
        yield tracer


@pytest.fixture(scope="session")
def torch_python() -> str:
    """The Python that the demo would run: EACGM_DEMO_PYTHON, else the distribution's, else ours."""
    try:
        return find().path
    except UnsupportedError as error:
        pytest.skip(str(error))
