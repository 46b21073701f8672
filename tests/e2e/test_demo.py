"""The demo from end to end: a real job, a real fault, the real verdict; and what is left when it is cut short."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eacgm.demo.faults import KINDS, RIGHT_CAUSES
from eacgm.demo.interpreters import find
from eacgm.demo.quota import cpu_hierarchy
from eacgm.demo.recorded import shipped, shipped_recording
from eacgm.demo.training import TrainingJob
from eacgm.errors import EacgmError, UnsupportedError

EACGM = [sys.executable, "-m", "eacgm"]
RECORDED = sorted(set(shipped()) | {"slow"})


def live_obstacle() -> str | None:
    """Return why no live demo can run here, None if it can."""
    from eacgm.producers.tracer import Tracer

    try:
        find(quick=True)
        Tracer().close()
    except EacgmError as error:
        return f"eBPF or torch: {error}"
    return None


@pytest.fixture(scope="session")
def live() -> None:
    obstacle = live_obstacle()
    if obstacle is not None:
        pytest.skip(obstacle)


def run_eacgm(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*EACGM, *arguments], capture_output=True, text=True, timeout=timeout, check=False)


def alerts_in(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def eventually(holds: Callable[[], object], within_seconds: float) -> bool:
    deadline = time.monotonic() + within_seconds
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("fault", RECORDED)
def test_recorded_demo_names_rank_and_cause(fault):
    done = run_eacgm("demo", "--recorded", "--fault", fault, "--json")
    assert done.returncode == 0, done.stderr
    alerts = alerts_in(done.stdout)
    assert {alert["cause"] for alert in alerts} == set(RIGHT_CAUSES[fault])
    if fault != "none":
        assert [alert["state"] for alert in alerts if alert["state"] != "update"] == ["open", "resolved"]
        assert all(alert["ranks"] == [2] for alert in alerts)
    assert "verdict: right" in done.stderr


@pytest.mark.parametrize("fault", RECORDED)
def test_replay_of_the_shipped_recording_gives_the_same_alerts(fault):
    with shipped_recording(fault) as folder:
        replayed = run_eacgm("replay", str(folder), "--json")
    assert replayed.returncode == 0, replayed.stderr
    assert replayed.stdout == run_eacgm("demo", "--recorded", "--fault", fault, "--json").stdout


def test_shipped_recordings_are_small():
    total_bytes = 0
    for fault in shipped():
        with shipped_recording(fault) as folder:
            total_bytes += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert 0 < total_bytes < 2_000_000


def test_lines_for_people_say_warm_up_fault_delay_and_verdict():
    done = run_eacgm("demo", "--recorded")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    for said in ("all 4 ranks seen", "FAULT: rank 2 was", "s after the fault]", "ALERT resolved", "verdict: right"):
        assert said in done.stdout


def test_without_torch_the_recorded_demo_is_shown_and_says_why():
    done = run_eacgm("demo", "--python", "/no/such/python")
    assert done.returncode == 0, done.stderr
    assert "no live demo here: no Python with torch" in done.stdout
    assert "verdict: right" in done.stdout


def test_live_without_torch_fails_in_one_line():
    done = run_eacgm("demo", "--live", "--python", "/no/such/python")
    assert done.returncode == 1
    assert re.fullmatch(r"eacgm: error: no Python with torch .*\n", done.stderr)


def test_recording_a_recorded_demo_is_wrong_usage(tmp_path):
    done = run_eacgm("demo", "--recorded", "--record", str(tmp_path / "out"))
    assert done.returncode == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.ebpf
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(260)
@pytest.mark.usefixtures("live")
@pytest.mark.parametrize("fault", KINDS)
def test_live_demo_is_right(fault, tmp_path):
    recording = tmp_path / "recording"
    seconds = "100" if fault == "none" else "180"
    done = run_eacgm(
        "demo", "--live", "--fault", fault, "--rank", "1", "--record", str(recording), "--seconds", seconds, "--json",
        timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    alerts = alerts_in(done.stdout)
    assert {alert["cause"] for alert in alerts} == set(RIGHT_CAUSES[fault])
    assert run_eacgm("replay", str(recording), "--json").stdout == done.stdout
    programme = json.loads((recording / "demo.json").read_text())
    assert (programme["fault"], programme["rank"]) == (fault, 1)


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([*EACGM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def processes_of(module: str) -> set[int]:
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if module in (folder / "cmdline").read_bytes().decode(errors="replace"):
                found.add(int(folder.name))
    return found


def remains() -> set[int]:
    return processes_of("eacgm/demo/job.py") | processes_of("eacgm.demo.source") | processes_of("eacgm.demo.guard")


@pytest.mark.ebpf
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.usefixtures("live")
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_demo_leaves_no_process_no_cgroup_and_no_file(sign, tmp_path, monkeypatch):
    before = remains()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # so short a warm-up that the quota is in place when the demo is cut short
    with started("demo", "--live", "--set", "detect.warmup_windows=5") as demo:
        planted = next((line for line in demo.stdout if line.startswith("FAULT")), None)
        assert planted is not None
        demo.send_signal(sign)
        status = demo.wait(timeout=30)
    assert status == (-signal.SIGKILL if sign == signal.SIGKILL else 130)
    assert eventually(lambda: remains() <= before, within_seconds=20)
    assert eventually(lambda: not list(tmp_path.iterdir()), within_seconds=20)
    try:
        _, mount = cpu_hierarchy()
    except UnsupportedError:
        return
    assert eventually(lambda: not list(mount.glob(f"eacgm-demo-{demo.pid}")), within_seconds=20)


@pytest.mark.ebpf
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.usefixtures("live")
def test_run_finds_a_job_tells_its_hang_and_replays_to_the_same_bytes(tmp_path):
    recording = tmp_path / "recording"
    arguments = ("run", "--json", "--record", str(recording), "--set", "detect.warmup_windows=10")
    logs = tmp_path / "logs"
    logs.mkdir()
    with (
        (tmp_path / "alerts").open("w+") as out,
        subprocess.Popen([*EACGM, *arguments], stdout=out, stderr=subprocess.PIPE, text=True) as watch,
    ):
        try:
            with TrainingJob(find(), logs, n_ranks=4, arguments=("--print-every", "5")) as job:
                job.wait_for_step(150, timeout_seconds=120)
                os.kill(job.pids[3], signal.SIGSTOP)
                # other jobs of this machine are watched as well, and may have alerts of their own
                alerted = eventually(lambda: f'"job":"{job.name}"' in (tmp_path / "alerts").read_text(), 30)
                os.kill(job.pids[3], signal.SIGCONT)
                assert alerted, "no alert within 30 s of the stop"
                watch.send_signal(signal.SIGTERM)
                told = watch.communicate(timeout=30)[1]
        finally:
            watch.kill()
        assert watch.returncode == 0, told
        live_text = (tmp_path / "alerts").read_text()
    alerts = [alert for alert in alerts_in(live_text) if alert["job"] == job.name]
    assert (alerts[0]["cause"], alerts[0]["ranks"]) == ("hang", [3])
    assert re.search(r"[\d,]+ events, [\d,]+ windows, 0 lost", told)
    replayed = run_eacgm("replay", str(recording), "--json", "--set", "detect.warmup_windows=10")
    assert replayed.stdout == live_text
