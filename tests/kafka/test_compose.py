"""What docker-compose.yml runs, run here: the same commands and variables, a broker and a registry of our own."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fleet import fetch
from ruamel.yaml import YAML

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
COMPOSE = YAML(typ="safe").load((ROOT / "docker-compose.yml").read_text())
RECORDING = ROOT / "eacgm" / "data" / "demo-slow.recording"
RECIPE = (ROOT / "deploy" / "Dockerfile").read_text()
#: the images' commands, by the target that says them
IMAGES = dict(re.findall(r"AS (worker|agent)\n.*?^CMD (\[.*?\])$", RECIPE, re.MULTILINE | re.DOTALL))


def free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def expand(text):
    """Return a text with the file's variables at their defaults."""
    return re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", text)


def variables(service, broker, registry):
    told = COMPOSE["services"][service]["environment"]
    assert set(told) == {"EACGM_KAFKA_BOOTSTRAP", "EACGM_KAFKA_REGISTRY"}
    path = expand(told["EACGM_KAFKA_REGISTRY"]).partition("8080")[2]
    assert registry.url.endswith(path)  # the same interface of the same registry
    return {**os.environ, "EACGM_KAFKA_BOOTSTRAP": broker.bootstrap, "EACGM_KAFKA_REGISTRY": registry.url}


def healthy(service):
    check = COMPOSE["services"][service]["healthcheck"]["test"]
    assert check[:2] == ["CMD", "python3"]
    return subprocess.run([sys.executable, *check[2:]], check=False, capture_output=True).returncode == 0


def wait(condition, log, seconds=90.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{log.read_text()}\n{metrics()}"
        time.sleep(0.3)


def metrics():
    """Return what the worker counts, for the reader of a failure; nothing where no worker answers."""
    try:
        return fetch("127.0.0.1:9464", "/metrics")
    except OSError:
        return "the worker answers no request"


def test_its_services_work_together(new_broker, schema_registry, tmp_path):
    if not (free(9464) and free(9465)):
        pytest.skip("ports 9464 and 9465 are in use")
    broker, log = new_broker(), tmp_path / "log"
    arguments = [expand(word) for word in COMPOSE["services"]["topics"]["command"]]
    program = [sys.executable, "-m", "eacgm"]
    subprocess.run([*program, *arguments], env=variables("topics", broker, schema_registry), check=True, timeout=120)
    started = []
    try:
        for service, image in (("worker-1", "worker"), ("agent", "agent")):
            assert COMPOSE["services"][service]["build" if service == "agent" else "image"]
            command = [word.replace("/var/lib/eacgm", str(tmp_path / "spool")) for word in json.loads(IMAGES[image])]
            with log.open("ab") as output:
                environment = variables(service, broker, schema_registry)
                started.append(subprocess.Popen([*program, *command], env=environment, stdout=output, stderr=output))
        for service in ("worker-1", "agent"):
            wait(lambda service=service: healthy(service), log)
        environment = variables("worker-1", broker, schema_registry)
        # by its own times it would be older than the topics keep, and gone within minutes
        publish = [*program, "publish", str(RECORDING), "--job", "composed"]
        subprocess.run(publish, env=environment, check=True, timeout=120, capture_output=True)
        alerts, said_at = [*program, "alerts", "--follow", "--json", "--job", "composed"], tmp_path / "alerts"
        with said_at.open("wb") as output, log.open("ab") as errors:
            started.append(subprocess.Popen(alerts, env=environment, stdout=output, stderr=errors))
        wait(lambda: b"\n" in said_at.read_bytes(), log)
        said = json.loads(said_at.read_text().splitlines()[0])
        assert (said["cause"], said["ranks"]) == ("slow_compute", [2])
        assert "eacgm_rank_windows_total" in fetch("127.0.0.1:9464", "/metrics")
        assert "eacgm_agent_messages_dropped_total 0.0" in fetch("127.0.0.1:9465", "/metrics")
        for process in started:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(60) for process in started] == [0, 0, 0], log.read_text()
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()
