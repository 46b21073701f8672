"""Laws of the node side: nothing grows by less than nothing, time has no gaps, a pid is not a process."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from eacgm.producers.agent import Agent
from eacgm.producers.cgroups import ThrottleReader
from eacgm.producers.clock import ClockReading
from eacgm.producers.identity import ALLOWED_NAMES, allowed, identify
from eacgm.producers.processes import ProcessTable
from eacgm.producers.procfs import ProcessReading, Stat, changes

SECOND = 1_000_000_000
amounts = st.one_of(st.none(), st.floats(0, 1e15))


@st.composite
def readings(draw):
    stat = Stat(1, "python", "S", 0, 0, 0, 1, draw(st.integers(1, 2)), 0, 0, 0, 0)
    waits = st.one_of(st.none(), st.dictionaries(st.integers(1, 4), st.floats(0, 1e9)))
    cpu, faults = draw(st.floats(0, 1e9)), draw(st.floats(0, 1e9))
    return ProcessReading(stat, cpu, faults, 0.0, 1, False, draw(amounts), draw(amounts), draw(amounts), draw(waits))


@settings(deadline=None)
@given(readings(), st.one_of(st.none(), readings()))
def test_no_process_ever_does_less_than_nothing(now, before):
    for value in changes(now, before).values():
        assert value is None or value >= 0


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=8))
def test_throttled_time_never_shrinks(counters):
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        group = root / "sys/fs/cgroup/cpu/a"
        group.mkdir(parents=True)
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/self/mountinfo").write_text("32 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
        (group / "cpu.cfs_quota_us").write_text("1000\n")
        reader = ThrottleReader(name)
        for index, counter in enumerate(counters):
            (group / "cpu.stat").write_text(f"throttled_time {counter}\n")
            reader.advance()
            told = reader.seconds({"cpu": "/a"})
            expected = counter - counters[index - 1] if index else -1
            assert told == (expected / 1e9 if expected >= 0 else None) or abs(told - expected / 1e9) < 1e-6


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(0.001, 20), min_size=1, max_size=30), st.sampled_from([100, 250, 1000]))
def test_intervals_cover_time_without_gap_or_overlap(steps, interval_ms):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "proc/7"
        folder.mkdir(parents=True)
        (folder / "stat").write_text(f"7 (python) S 1 {'0 ' * 15}1 0 50 {'0 ' * 30}\n")
        (folder / "environ").write_bytes(b"RANK=0\0MASTER_ADDR=m\0")
        now_ns = 1_800_000_000 * SECOND + 123_456_789
        told = []

        def read() -> ClockReading:
            return ClockReading(now_ns, 0, None)

        agent = Agent(
            told.append, interval_ms=interval_ms, root=Path(name), trace=False, gpus=False, node="n", clock=read
        )
        begun_ns = now_ns
        for step in steps:
            now_ns += round(step * SECOND)
            agent.collect()
        nodes = [event for event in told if event.role == "node"]
        bounds = [begun_ns, *(event.end_ns for event in nodes)]
        assert [event.start_ns for event in nodes] == bounds[:-1]
        assert all(event.end_ns % (interval_ms * 1_000_000) == 0 for event in nodes)
        assert bounds[-1] <= now_ns < max(bounds[-1], begun_ns) + interval_ms * 1_000_000 or not nodes


# a life is (pid, rank); each step the given lives exist, each a process of its own
lives = st.dictionaries(st.integers(10, 13), st.tuples(st.integers(1, 3), st.integers(0, 3)), max_size=4)


@settings(deadline=None, max_examples=60)
@given(st.lists(lives, min_size=1, max_size=6))
def test_the_table_follows_processes_and_not_pids(steps):
    with tempfile.TemporaryDirectory() as name:
        proc = Path(name) / "proc"
        proc.mkdir()
        table = ProcessTable(name)
        running = set()
        for step in steps:
            for folder in proc.iterdir():
                shutil.rmtree(folder)
            for pid, (start, rank) in step.items():
                (proc / str(pid)).mkdir()
                # another rank is another process: its start time says so
                tail = f"S 1 {'0 ' * 15}1 0 {start * 10 + rank} 0 0 0 0 0 {start * 10 + rank} {'0 ' * 24}"
                (proc / str(pid) / "stat").write_text(f"{pid} (python) {tail}\n")
                (proc / str(pid) / "environ").write_bytes(b"RANK=%d\0MASTER_ADDR=m\0" % rank)
            found = table.scan()
            now = {(pid, start * 10 + rank) for pid, (start, rank) in step.items()}
            assert {(p.pid, p.stat.start_ticks) for p in found.ended} == running - now
            assert {(p.pid, p.stat.start_ticks) for p in found.found} == now - running
            assert {(p.pid, p.stat.start_ticks) for p in table.processes} == now
            running = now


names = st.text(st.characters(min_codepoint=65, max_codepoint=90), min_size=1, max_size=12)
values = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=40)


@given(st.lists(st.tuples(st.one_of(names, st.sampled_from(sorted(ALLOWED_NAMES))), values), max_size=20))
def test_no_value_of_another_name_is_ever_taken(entries):
    environ = b"".join(f"{name}={value}".encode() + b"\0" for name, value in entries)
    taken = allowed(environ)
    assert set(taken) <= {name for name, _ in entries} & ALLOWED_NAMES
    identity = identify(taken, job="given")
    if identity is not None and identity.rank is not None:
        assert identity.rank >= 0
