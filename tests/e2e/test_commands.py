"""Commands as a shell calls them: their words, their output, their exit status."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eacgm.cli.main import main

ROWS = "time_s,rank,metric,value\n" + "".join(f"{t},{r},step_seconds,0.2\n" for t in range(20) for r in range(4))


@pytest.fixture
def call(capfd):
    def call(*arguments):
        status = main([str(argument) for argument in arguments])
        told = capfd.readouterr()
        assert "Traceback" not in told.err
        return status, told.out, told.err

    return call


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "job.csv"
    path.write_text(ROWS)
    return path


def one_line(text):
    assert text.startswith("eacgm: error: ")
    assert text.count("\n") == 1
    return text


def test_a_table_becomes_a_recording_that_replays(call, table, tmp_path):
    status, out, err = call("import", "table", table, "--out", tmp_path / "rec")
    assert (status, out) == (0, "")
    assert "80 readings of 4 ranks over 20 s" in err
    status, out, err = call("replay", tmp_path / "rec")
    assert (status, out) == (0, "")
    assert "20 windows of 4 ranks" in err


def test_import_tells_machines_what_it_did(call, table, tmp_path):
    status, out, _ = call("import", "table", table, "--job", "llama", "--out", tmp_path / "rec", "--json")
    assert status == 0
    told = json.loads(out)
    assert (told["jobs"], told["ranks"], told["readings"], told["events"]) == (["llama"], 4, 80, 80)


def test_a_bad_table_leaves_nothing_behind(call, table, tmp_path):
    table.write_text(ROWS + "20,0,step_seconds,nan\n")
    status, out, err = call("import", "table", table, "--out", tmp_path / "rec")
    assert (status, out) == (1, "")
    assert "job.csv: line 82" in one_line(err)
    assert [path.name for path in tmp_path.iterdir()] == ["job.csv"]


def test_import_and_simulate_overwrite_nothing(call, table, tmp_path):
    for arguments in (("import", "table", table), ("simulate", "--seconds", 5)):
        status, _, err = call(*arguments, "--out", tmp_path)
        assert status == 1
        assert "nothing is overwritten" in one_line(err)
    assert table.read_text() == ROWS


def test_simulate_is_deterministic_and_labels_what_it_planted(call, tmp_path):
    arguments = ("simulate", "--ranks", 4, "--seconds", 40, "--seed", 5, "--fault", "hang@2:20-30")
    for name in ("one", "two"):
        status, out, _ = call(*arguments, "--out", tmp_path / name)
        assert (status, out) == (0, "")
    labels = json.loads((tmp_path / "one" / "labels.json").read_text())
    assert labels["faults"] == [{"fault": "hang", "ranks": [2], "onset_s": 20.0, "end_s": 30.0}]
    replays = [call("replay", tmp_path / name, "--json")[1] for name in ("one", "two")]
    assert replays[0] == replays[1]


def test_a_fault_that_cannot_be_is_wrong_usage(call, tmp_path):
    status, _, err = call("simulate", "--fault", "hang@99", "--out", tmp_path / "rec")
    assert status == 2
    assert "rank 99 is not there" in one_line(err)


def test_replay_gives_an_alert_a_line_and_the_same_ones_every_time(call, tmp_path):
    call(
        "simulate",
        "--ranks",
        4,
        "--seconds",
        100,
        "--seed",
        5,
        "--fault",
        "gpu_hardware@2:70",
        "--out",
        tmp_path / "rec",
    )
    first, second = (call("replay", tmp_path / "rec", "--json") for _ in range(2))
    status, out, err = first
    assert (status, out) == second[:2]
    assert status == 0
    assert "eacgm:" not in err
    alerts = [json.loads(line) for line in out.splitlines()]
    assert any(
        alert["state"] == "open" and alert["cause"] == "gpu_hardware" and alert["ranks"] == [2] for alert in alerts
    )
    status, out, err = call("replay", tmp_path / "rec")
    assert out.count("\n") == len(alerts)
    assert "windows of 4 ranks" in err


def test_since_and_until_choose_a_stretch(call, table, tmp_path):
    call("import", "table", table, "--out", tmp_path / "rec")
    status, _, err = call("replay", tmp_path / "rec", "--since", "5", "--until", "1970-01-01T00:00:15Z")
    assert status == 0
    assert "10 windows of 4 ranks" in err
    status, _, err = call("replay", tmp_path / "rec", "--since", "1000")
    assert status == 1
    assert "widen them" in one_line(err)
    status, _, err = call("replay", tmp_path / "rec", "--since", "9", "--until", "5")
    assert status == 2
    one_line(err)


def test_a_job_that_nobody_has_is_told_by_its_name(call, table, tmp_path):
    call("import", "table", table, "--out", tmp_path / "rec")
    status, _, err = call("replay", tmp_path / "rec", "--job", "nobody")
    assert status == 1
    assert "no event of a job 'nobody'" in one_line(err)
    assert "--since" not in err


def test_what_cannot_be_compared_with_is_told_before_the_replay(call, table, tmp_path):
    call("import", "table", table, "--out", tmp_path / "rec")
    (tmp_path / "rows").write_text(ROWS)
    for old, status in ((tmp_path / "nothing", 2), (tmp_path, 2), (tmp_path / "rows", 1)):
        told, out, err = call("replay", tmp_path / "rec", "--compare", old)
        assert (told, out) == (status, "")
        one_line(err)


def test_a_pipe_is_compared_with(call, table, tmp_path):
    call("import", "table", table, "--out", tmp_path / "rec")
    reader, writer = os.pipe()
    os.close(writer)
    status, _, err = call("replay", tmp_path / "rec", "--compare", f"/dev/fd/{reader}")
    os.close(reader)
    assert status == 0
    assert "compared with 0 incidents" in err


def test_a_recording_that_is_none_is_one_line(call, tmp_path):
    for source in (tmp_path / "nothing", tmp_path):
        status, out, err = call("replay", source)
        assert (status, out) == (1, "")
        one_line(err)


def test_a_recording_cut_off_is_read_as_far_as_it_goes_with_a_warning(call, table, tmp_path):
    call("import", "table", table, "--out", tmp_path / "rec")
    (path,) = (tmp_path / "rec").glob("*/*/*.avro")
    shutil.copytree(tmp_path / "rec", tmp_path / "whole")
    whole = path.read_bytes()
    # two blocks: the whole file's, and half of it once more without its header
    path.write_bytes(whole + whole[-(len(whole) // 3) :])
    status, _, err = call("replay", tmp_path / "rec")
    assert status == 0
    assert err.startswith("eacgm: warning: ")
    assert str(path) in err
    assert "20 windows of 4 ranks" in err


def test_bench_cases_prints_a_line_per_case_and_the_figures_over_all(call, tmp_path):
    case = tmp_path / "cases" / "calm"
    case.mkdir(parents=True)
    (case / "telemetry.csv").write_text(ROWS)
    (case / "expected.json").write_text(json.dumps({"alerts": [], "max_incidents": 0, "forbidden_causes": []}))
    status, out, _ = call("bench", "cases", tmp_path / "cases", "--incidents")
    assert status == 0
    assert "calm" in out
    assert "passed 1 of 1, recall - (0 of 0), extra incidents per hour 0.00" in out
    status, out, _ = call("bench", "cases", tmp_path / "cases", "--json")
    verdict, summary = (json.loads(line) for line in out.splitlines())
    assert (verdict["case"], verdict["passed"]) == ("calm", True)
    assert (summary["summary"]["cases"], summary["summary"]["passed"]) == (1, 1)


def test_bench_cases_of_nothing_is_one_line(call, tmp_path):
    status, _, err = call("bench", "cases", tmp_path)
    assert status == 1
    one_line(err)


def eventually(holds, within_seconds):
    until = time.monotonic() + within_seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def processes_with(marker):
    """The processes whose environment holds the text."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marker.encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_judging_that_is_cut_short_leaves_no_worker_and_no_folder(tmp_path, sign):
    folder, temporary = tmp_path / "cases", tmp_path / "temporary"
    temporary.mkdir()
    rows = "".join(f"{t},{r},step_seconds,0.2\n" for t in range(3000) for r in range(16))
    for number in range(6):
        case = folder / f"case{number}"
        case.mkdir(parents=True)
        (case / "telemetry.csv").write_text("time_s,rank,metric,value\n" + rows)
        (case / "expected.json").write_text('{"alerts":[],"max_incidents":0,"forbidden_causes":[]}')
    judging = subprocess.Popen(
        [sys.executable, "-m", "eacgm", "bench", "cases", str(folder)],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert eventually(lambda: list(temporary.iterdir()), within_seconds=60)
    judging.send_signal(sign)
    told = judging.communicate(timeout=60)[1]
    assert judging.returncode == (-sign if sign == signal.SIGKILL else 128 + sign)
    assert "Traceback" not in told
    assert eventually(lambda: not processes_with(str(temporary)), within_seconds=30)
    assert not list(temporary.iterdir())
