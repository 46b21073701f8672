"""`eacgm run` on two ranks whose GPUs are the tests' NVML: what is recorded, and whom an XID's alert names."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from nvml_stub import GIB, Stub, gpu

from eacgm.events import GpuEvent, ProcessEvent
from eacgm.schemas.recording import RecordingReader

JOB = "gpu-fault"


@pytest.fixture
def ranks():
    ranks = []
    for rank in range(2):
        variables = {"RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": JOB, "LOCAL_RANK": str(rank)}
        command = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
        ranks.append(subprocess.Popen(command, env={**os.environ, **variables}))
    yield ranks
    for process in ranks:
        process.kill()
        process.wait()


def test_an_xid_is_recorded_and_its_rank_is_named_once(tmp_path, ranks):
    stub = Stub(tmp_path)
    busy = tuple(f"{index}.process {process.pid}:{30 * GIB}:80" for index, process in enumerate(ranks))

    def tell(second, *lines):
        stub.tell({"gpus": 2}, gpu(0), gpu(1, **second), lines=(*busy, *lines))

    tell({})
    command = [sys.executable, "-m", "eacgm", "run", "--json", "--record", str(tmp_path / "recording")]
    out = tmp_path / "alerts"
    with out.open("w") as alerts, (tmp_path / "log").open("w") as log:
        agent = subprocess.Popen(command, env=stub.environment, stdout=alerts, stderr=log)
        try:
            time.sleep(12)
            # it logs an error, falls off the bus, and stays away
            tell({"lost": 1}, "xid 1:1:79")
            time.sleep(8)
            agent.send_signal(signal.SIGTERM)
            assert agent.wait(timeout=60) == 0, (tmp_path / "log").read_text()
        finally:
            if agent.poll() is None:
                agent.kill()
                agent.wait()

    events = [event for event in RecordingReader(tmp_path / "recording") if event.job == JOB]
    told = [event for event in events if isinstance(event, GpuEvent)]
    assert {event.gpu_uuid for event in told} == {"GPU-0", "GPU-1"}
    assert {event.power_watts for event in told if not event.lost_device} == {312.5}
    assert [(event.gpu_uuid, event.xids) for event in told if event.xids] == [("GPU-1", [79])]
    assert {event.rank: event.gpu_uuids for event in events if isinstance(event, ProcessEvent) and event.gpu_uuids} == {
        0: ["GPU-0"],
        1: ["GPU-1"],
    }
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    opened = [line for line in lines if line["job"] == JOB and line["state"] == "open"]
    assert [(alert["cause"], alert["layer"], alert["ranks"]) for alert in opened] == [("gpu_hardware", "gpu", [1])]
    assert "79" in opened[0]["summary"]
