"""The agent on real processes that the test starts: found, followed, told apart, let go."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from eacgm.events import CallsEvent, CollectivesEvent, HostEvent, ProcessEvent
from eacgm.producers.agent import Agent
from eacgm.schemas import decode, encode

INTERVAL_MS = 500
SLEEPER = "import time; time.sleep(60)"
BUSY = "while True: pass"
#: a rank that starts a data loader, which inherits its environment
WITH_WORKER = "import os, time\nif os.fork() == 0:\n    time.sleep(60)\ntime.sleep(60)"


class Node:
    """An agent that runs in a thread, and the processes of one job of its own."""

    def __init__(self, trace: bool):
        self.job = f"test-{os.getpid()}-{time.monotonic_ns()}"
        self.events = []
        self.agent = Agent(self.events.append, interval_ms=INTERVAL_MS, only_jobs=[self.job], trace=trace)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.agent.run, args=(self._stop,))
        self._children = []

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        for child in self._children:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        self.stop()

    def stop(self):
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def start(self, rank, program=SLEEPER, **variables):
        environ = {
            "RANK": str(rank),
            "WORLD_SIZE": "4",
            "TORCHELASTIC_RUN_ID": self.job,
            "TOKEN": "hunter2",
            **variables,
        }
        child = subprocess.Popen([sys.executable, "-c", program], env=environ, start_new_session=True)
        self._children.append(child)
        return child

    def seen(self, kind, **fields):
        return [
            event
            for event in list(self.events)
            if isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items())
        ]

    def wait(self, kind, count=1, seconds=20.0, **fields):
        """Wait until so many such events have come; return them."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = self.seen(kind, **fields)
            if len(found) >= count:
                return found
            time.sleep(0.02)
        raise AssertionError(f"{kind.__name__} {fields}: {len(self.seen(kind, **fields))} of {count} in {seconds} s")


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.ebpf)], ids=["proc", "traced"])
def node(request):
    with Node(request.param) as running:
        assert (running.agent.failure is None) == request.param
        yield running


def test_a_rank_is_found_within_two_intervals_and_told_with_its_identity(node):
    begun_ns = time.time_ns()
    child = node.start(2)
    event = node.wait(ProcessEvent, pid=child.pid)[0]
    assert (event.job, event.rank, event.world_size, event.role, event.state) == (node.job, 2, 4, "rank", "running")
    # the interval in which it began or the next one; the machine may serve that one late
    assert event.start_ns - begun_ns <= 2 * INTERVAL_MS * 1_000_000
    first = node.wait(HostEvent, count=3, pid=child.pid)
    assert first[0].cpu_seconds is None
    assert first[0].rss_bytes > 1e6
    assert first[2].cpu_seconds is not None
    assert first[2].threads == 1


def test_workers_are_told_apart_from_their_rank(node):
    child = node.start(1, WITH_WORKER)
    worker = node.wait(ProcessEvent, role="worker")[0]
    assert node.wait(ProcessEvent, role="rank")[0].pid == child.pid
    assert worker.pid != child.pid
    assert worker.rank == 1
    assert node.wait(HostEvent, role="worker", rank=1)[0].pid == worker.pid


def test_a_stopped_process_is_seen_as_stopped_and_going_on(node):
    child = node.start(3, BUSY)
    node.wait(HostEvent, count=2, pid=child.pid, stopped=False)
    os.kill(child.pid, signal.SIGSTOP)
    stopped = node.wait(HostEvent, count=3, pid=child.pid, stopped=True)[2]
    assert stopped.cpu_seconds == pytest.approx(0, abs=0.011)
    count = len(node.seen(HostEvent, pid=child.pid, stopped=False))
    os.kill(child.pid, signal.SIGCONT)
    assert node.wait(HostEvent, count=count + 2, pid=child.pid, stopped=False)[-1].cpu_seconds > 0


def test_event_time_goes_on_while_every_process_is_stopped(node):
    child = node.start(0)
    node.wait(HostEvent, count=2, role="node")
    os.kill(child.pid, signal.SIGSTOP)
    before = len(node.seen(HostEvent, role="node"))
    ends = [event.end_ns for event in node.wait(HostEvent, count=before + 3, role="node", job=node.job)]
    assert ends == sorted(set(ends))
    assert all(end % (INTERVAL_MS * 1_000_000) == 0 for end in ends)


@pytest.mark.parametrize(("program", "code"), [("import time; time.sleep(3); raise SystemExit(7)", 7), (SLEEPER, -9)])
def test_an_exit_is_told_with_its_code(node, program, code):
    child = node.start(0, program)
    node.wait(HostEvent, count=2, pid=child.pid)
    if code < 0:
        os.kill(child.pid, signal.SIGKILL)
    # not reaped until it is told: a training job's launcher polls too
    event = node.wait(ProcessEvent, pid=child.pid, state="exited")[0]
    assert event.exit_code == code
    child.wait()
    count = len(node.seen(HostEvent, pid=child.pid))
    node.wait(HostEvent, count=len(node.seen(HostEvent, role="node")) + 2, role="node")
    assert len(node.seen(HostEvent, pid=child.pid)) == count
    assert len(node.seen(ProcessEvent, pid=child.pid, state="exited")) == 1


def test_ranks_that_start_later_and_restart_are_followed(node):
    first = node.start(0)
    node.wait(ProcessEvent, pid=first.pid)
    second = node.start(1)
    node.wait(ProcessEvent, pid=second.pid, incarnation=0)
    for child in (first, second):
        child.kill()
        child.wait()
    node.wait(ProcessEvent, count=2, state="exited")
    again = node.start(0)
    assert node.wait(ProcessEvent, pid=again.pid)[0].incarnation == 1


def test_a_process_that_executes_into_a_rank_is_found(node):
    program = (
        "import os, sys, time; time.sleep(1.5); os.environ.update(RANK='3', TORCHELASTIC_RUN_ID=sys.argv[1]); "
        + ("os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(60)'])")
    )
    child = subprocess.Popen([sys.executable, "-c", program, node.job], start_new_session=True, env={"PATH": "/bin"})
    node._children.append(child)
    assert node.wait(ProcessEvent, pid=child.pid)[0].rank == 3


def test_every_event_survives_its_encoding_and_holds_no_secret(node):
    node.start(0, WITH_WORKER)
    node.wait(HostEvent, count=3, role="worker")
    for event in list(node.events):
        payload = encode(event)
        assert decode(payload) == event
        assert b"hunter2" not in payload


def test_a_cpu_quota_shows_as_throttled_time(node):
    parent = Path("/sys/fs/cgroup/cpu")
    if not (parent / "cpu.cfs_quota_us").exists() and not (parent / "cgroup.procs").exists():
        parent = Path("/sys/fs/cgroup")
    group = parent / node.job
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"control groups cannot be made here ({error.strerror})")
    child = node.start(0, BUSY)
    try:
        if (group / "cpu.cfs_quota_us").exists():
            (group / "cpu.cfs_quota_us").write_text("10000")
        else:
            (group / "cpu.max").write_text("10000 100000")
        node.wait(HostEvent, pid=child.pid, throttled_seconds=0.0)
        (group / "cgroup.procs").write_text(str(child.pid))
        deadline = time.monotonic() + 20
        told = []
        while time.monotonic() < deadline and len(told) < 4:
            time.sleep(0.1)
            told = [e for e in node.seen(HostEvent, pid=child.pid) if e.throttled_seconds]
        assert len(told) >= 4
        for event in told[1:4]:
            length = (event.end_ns - event.start_ns) / 1e9
            assert 0.3 * length < event.throttled_seconds < 2.5 * length
            assert event.cpu_seconds < 0.3 * length + 0.05
    finally:
        child.kill()
        child.wait()
        for _ in range(50):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


@pytest.mark.ebpf
def test_traced_ranks_have_coverage_calls_and_scheduling():
    with Node(True) as node:
        program = "import gc, time\nwhile True:\n    gc.collect(); time.sleep(0.05)"
        child = node.start(0, program)
        layers = {layer.layer: layer for layer in node.wait(ProcessEvent, pid=child.pid)[0].layers}
        assert layers["python"].status == "attached"
        assert (layers["pytorch"].status, layers["cuda"].status) == ("absent", "absent")
        node.wait(CallsEvent, count=4, pid=child.pid)
        calls = node.seen(CallsEvent, pid=child.pid)[-1]
        assert calls.function == ["gc"]
        assert calls.count[0] > 0
        assert node.seen(CollectivesEvent, pid=child.pid)
        host = node.wait(HostEvent, count=3, pid=child.pid)[-1]
        assert host.off_cpu_seconds is not None
        assert host.off_cpu_seconds > 0.1
        assert host.run_queue_wait_seconds is not None


@pytest.mark.ebpf
def test_stopping_detaches_and_the_agent_goes_on_without_the_tracer():
    with Node(True) as node:
        child = node.start(0)
        node.wait(HostEvent, count=2, pid=child.pid)
        links = count_links()
        assert links > 0
        node.stop()
        assert count_links() == 0
        assert node.agent.failure == "tracing has ended"
        before = len(node.events)
        time.sleep(INTERVAL_MS / 1000)
        node.agent.collect()
        assert [event.pid for event in node.events[before:] if isinstance(event, HostEvent)] == [child.pid, 0]


def count_links() -> int:
    """Return how many BPF links this process holds."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += "bpf_link" in os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
    return found
