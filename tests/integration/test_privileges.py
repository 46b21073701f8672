"""The rights that the unit and the DaemonSet give suffice, and the agent gives up all others."""

from __future__ import annotations

import configparser
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from eacgm.producers.privileges import NEEDED

pytestmark = pytest.mark.ebpf

DEPLOY = Path(__file__).parents[2] / "deploy"
MASK = sum(1 << number for number in NEEDED.values())
#: traces a process of root's and one's own confinement, then prints what it may and what it counted
_PROGRAM = """
import runpy, sys
from eacgm.producers.privileges import confine, held
from eacgm.producers.tracer import Tracer
confine()
with Tracer(runpy.run_path(sys.argv[1])['PROBES']) as tracer:
    pid = int(sys.argv[2])
    tracer.watch(pid)
    print('watching', flush=True)
    input()
    calls = tracer.collect().observations[pid].calls
    counts = dict(zip(calls.function, calls.count.tolist()))
    print(counts['work'], hex(held()), len(open(f'/proc/{pid}/environ').read()))
"""


def unit():
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str
    parser.read(DEPLOY / "eacgm-agent.service")
    return parser["Service"]


def daemonset():
    pod = YAML(typ="safe").load((DEPLOY / "agent-daemonset.yaml").read_text())["spec"]["template"]["spec"]
    return pod, pod["containers"][0]


def test_unit_and_daemonset_give_what_is_needed_and_nothing_else():
    for setting in ("AmbientCapabilities", "CapabilityBoundingSet"):
        assert set(unit()[setting].split()) == set(NEEDED)
    pod, agent = daemonset()
    rights = agent["securityContext"]
    assert {f"CAP_{name}" for name in rights["capabilities"]["add"]} == set(NEEDED) - {"CAP_SYSLOG"}
    assert rights["capabilities"]["drop"] == ["ALL"]
    assert rights["allowPrivilegeEscalation"] is False
    assert pod["hostPID"] is True
    assert {mount["name"] for mount in agent["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path):
    # the program must exist for systemd to be content
    text = (DEPLOY / "eacgm-agent.service").read_text().replace("/opt/eacgm/bin/eacgm", "/bin/true")
    (tmp_path / "eacgm-agent.service").write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "eacgm-agent.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    complaints = [line for line in done.stderr.splitlines() if "eacgm-agent" in line]
    assert (done.returncode, complaints) == (0, []), done.stderr


@pytest.mark.parametrize("user", [0, 65534], ids=["root as in a pod", "nobody as under systemd"])
def test_the_very_capabilities_trace_a_process_of_another_user(driver, user):
    one = driver()
    names = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in NEEDED)
    sets = [
        f"--{kind}={'-all,' if kind != 'ambient-caps' else ''}{names}"
        for kind in ("bounding-set", "inh-caps", "ambient-caps")
    ]
    command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs", *sets]
    conftest = str(Path(__file__).with_name("conftest.py"))
    command += [sys.executable, "-c", _PROGRAM, conftest, str(one.pid)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as agent:
        assert agent.stdout.readline() == "watching\n", agent.stderr.read()
        one.run("for _ in range(23): lib.work(0, 0, 0)")
        out, said = agent.communicate("\n", timeout=60)
    count, effective, n_characters = out.split()
    assert (int(count), int(effective, 16)) == (23, MASK), said
    assert int(n_characters) > 0


def test_a_running_agent_of_root_has_given_up_all_else(tmp_path):
    command = [sys.executable, "-m", "eacgm", "run", "--record", str(tmp_path / "kept")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as agent:
        try:
            for line in agent.stderr:
                if line.startswith("watching"):
                    break
            assert "without probes" not in line
            for task in Path(f"/proc/{agent.pid}/task").iterdir():
                told = dict(
                    line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line
                )
                for kind in ("CapPrm", "CapEff", "CapBnd"):
                    assert int(told[kind], 16) == MASK, (kind, told["Name"])
                assert told["NoNewPrivs"] == "1"
            time.sleep(1.5)
        finally:
            agent.send_signal(signal.SIGTERM)
        assert agent.wait(timeout=30) == 0
