"""Faults on real processes: what they do, and that nothing of them stays behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eacgm.demo.faults import DutyCycle, Pause, Slow
from eacgm.demo.quota import CpuQuota, cpu_hierarchy
from eacgm.errors import UnsupportedError

BUSY = "while True: pass"
IDLE = "import time\nwhile True: time.sleep(0.05)"


@contextlib.contextmanager
def running(program: str) -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        try:
            yield process.pid
        finally:
            process.kill()
            process.send_signal(signal.SIGCONT)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_share(pid: int, over_seconds: float = 1.0) -> float:
    before, started = cpu_seconds(pid), time.monotonic()
    time.sleep(over_seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - started)


def eventually(holds: Callable[[], bool], within_seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + within_seconds
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.02)
    return False


def writable_hierarchy() -> tuple[int, Path] | None:
    try:
        version, mount = cpu_hierarchy()
    except UnsupportedError:
        return None
    return (version, mount) if os.access(mount, os.W_OK) and os.geteuid() == 0 else None


needs_cgroups = pytest.mark.skipif(writable_hierarchy() is None, reason="no writable cgroup hierarchy for the CPU")


def demo_cgroups() -> list[Path]:
    _, mount = cpu_hierarchy()
    return list(mount.glob(f"eacgm-demo-{os.getpid()}"))


@needs_cgroups
def test_quota_holds_a_busy_process_and_leaves_no_cgroup():
    announced: list[Path] = []
    with running(BUSY) as pid:
        quota = CpuQuota([pid], 0.2, announced.append)
        quota.start()
        assert announced == demo_cgroups()
        assert cpu_share(pid) < 0.35
        quota.stop()
        assert demo_cgroups() == []
        assert eventually(lambda: cpu_share(pid, 0.3) > 0.3)
        quota.stop()


@needs_cgroups
def test_quota_of_a_process_that_ends_leaves_no_cgroup():
    with running(BUSY) as pid:
        quota = CpuQuota([pid], 0.2, lambda _: None)
        quota.start()
    quota.stop()
    assert demo_cgroups() == []


@needs_cgroups
def test_quota_on_a_missing_process_is_told_and_leaves_no_cgroup():
    with pytest.raises(UnsupportedError, match="cgroup"):
        CpuQuota([2**22 + 1], 0.2, lambda _: None).start()
    assert demo_cgroups() == []


def test_without_cgroups_a_slow_rank_is_stopped_and_woken_and_left_running(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mounts").write_text("tmpfs /sys/fs/cgroup tmpfs rw 0 0\n")
    with running(BUSY) as pid:
        fault = Slow(pid, 0.2, lambda _: None, root=tmp_path)
        fault.start()
        assert "signals" in fault.description
        assert cpu_share(pid) < 0.5
        fault.stop()
        assert eventually(lambda: state_of(pid) in "RS")
        assert cpu_share(pid, 0.5) > 0.3


def test_duty_cycle_survives_the_end_of_its_process():
    with running(BUSY) as pid:
        cycle = DutyCycle(pid, 0.5)
        cycle.start()
    time.sleep(0.3)
    cycle.stop()


def test_pause_stops_and_wakes():
    with running(IDLE) as pid:
        fault = Pause(pid)
        fault.start()
        assert eventually(lambda: state_of(pid) == "T")
        fault.stop()
        assert eventually(lambda: state_of(pid) != "T")


@pytest.mark.parametrize("version", [1, 2])
def test_hierarchy_is_read_from_the_mounts(tmp_path, version):
    (tmp_path / "proc/self").mkdir(parents=True)
    mount = tmp_path / "sys/fs/cgroup"
    mount.mkdir(parents=True)
    kind, options = ("cgroup", "rw,cpu,cpuacct") if version == 1 else ("cgroup2", "rw")
    (mount / "cgroup.controllers").write_text("cpuset cpu io memory\n")
    (tmp_path / "proc/self/mounts").write_text(f"x /sys/fs/cgroup {kind} {options} 0 0\n")
    assert cpu_hierarchy(tmp_path) == (version, mount)


def test_quota_of_version_two_writes_cpu_max(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/77").mkdir()
    (tmp_path / "proc/77/cgroup").write_text("0::/user.slice/job\n")
    (tmp_path / "proc/self/mounts").write_text("x /sys/fs/cgroup cgroup2 rw 0 0\n")
    mount = tmp_path / "sys/fs/cgroup"
    home = mount / "user.slice/job"
    home.mkdir(parents=True)
    (mount / "cgroup.controllers").write_text("cpu\n")
    (mount / "cgroup.subtree_control").write_text("\n")
    quota = CpuQuota([77], 0.15, lambda _: None, root=tmp_path)
    quota.start()
    group = next(mount.glob("eacgm-demo-*"))
    assert (group / "cpu.max").read_text() == "15000 100000"
    assert (group / "cgroup.procs").read_text() == "77"
    assert (mount / "cgroup.subtree_control").read_text() == "+cpu"
    # A real cgroup's files vanish with it; here they must be taken away by hand.
    for file in group.iterdir():
        file.unlink()
    quota.stop()
    assert (home / "cgroup.procs").read_text() == "77"
    assert not group.exists()


def guard_told(lines: str) -> subprocess.Popen[str]:
    guard = subprocess.Popen([sys.executable, "-m", "eacgm.demo.guard"], stdin=subprocess.PIPE, text=True)
    guard.stdin.write(lines)
    guard.stdin.flush()
    return guard


def test_guard_ends_a_stopped_process_when_its_input_ends():
    with subprocess.Popen([sys.executable, "-c", IDLE]) as victim:
        guard = guard_told(f"process {victim.pid}\n")
        os.kill(victim.pid, signal.SIGSTOP)
        assert victim.poll() is None
        time.sleep(0.5)
        guard.stdin.close()
        assert victim.wait(timeout=10) == -signal.SIGKILL
        assert guard.wait(timeout=10) == 0


@needs_cgroups
def test_guard_empties_and_removes_a_cgroup_after_kill_nine():
    _, mount = cpu_hierarchy()
    group = mount / f"eacgm-demo-{os.getpid()}"
    with running(IDLE) as pid:
        # The demo itself: it makes the cgroup, tells its guard, and is killed before it can undo anything.
        program = (
            "import subprocess, sys, time\n"
            "from pathlib import Path\n"
            "from eacgm.demo.quota import CpuQuota\n"
            "guard = subprocess.Popen([sys.executable, '-m', 'eacgm.demo.guard'], stdin=subprocess.PIPE, text=True)\n"
            "def tell(path):\n"
            "    guard.stdin.write(f'cgroup {path}\\n')\n"
            "    guard.stdin.flush()\n"
            f"CpuQuota([{pid}], 0.5, tell).start()\n"
            "print(guard.pid, flush=True)\n"
            "time.sleep(60)\n"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as demo:
            assert demo.stdout.readline()
            group = mount / f"eacgm-demo-{demo.pid}"
            assert (group / "cgroup.procs").read_text().split() == [str(pid)]
            demo.kill()
            demo.wait(timeout=10)
            assert eventually(lambda: not group.exists())
        assert state_of(pid) in "RS"
