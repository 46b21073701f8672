"""A real Prometheus scrapes a real worker and agent with the configuration and the rules that deploy/ ships."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from debian_program import Service, UnavailableError, command
from fleet import PARTITIONS, fetch
from ruamel.yaml import YAML

from eacgm.kafka.clients import open_admin
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.kafka.topics import create, wanted

pytestmark = pytest.mark.kafka
DEPLOY = Path(__file__).parents[2] / "deploy"


def debian(name):
    try:
        return command(name, "prometheus")
    except UnavailableError as error:
        pytest.skip(str(error))


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def addresses(kafka_broker):
    """A worker and an agent that serve metrics: role -> HOST:PORT."""
    connection = Connection(bootstrap=kafka_broker.bootstrap)
    create(open_admin(connection, Complaints(connection)), wanted(PARTITIONS, 1, "prometheus"))
    environment = {**os.environ, "EACGM_KAFKA_BOOTSTRAP": kafka_broker.bootstrap}
    found = {"worker": f"127.0.0.1:{free_port()}", "agent": f"127.0.0.1:{free_port()}"}
    program = [sys.executable, "-m", "eacgm"]
    started = [
        subprocess.Popen([*program, *words], env=environment, stderr=subprocess.DEVNULL)
        for words in (
            ["worker", "--group", "prometheus", "--metrics", found["worker"]],
            ["agent", "--metrics", found["agent"]],
        )
    ]
    try:
        eventually(lambda: all(_serves(address) for address in found.values()))
        yield found
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(60)


def eventually(found, seconds=60.0):
    until = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < until
        time.sleep(0.3)
    return value


def _serves(address):
    try:
        return bool(fetch(address, "/metrics"))
    except OSError:
        return False


def test_promtool_has_nothing_to_say_of_what_is_shipped_nor_of_the_metrics(addresses):
    promtool = debian("promtool")
    for words in (["check", "config", DEPLOY / "prometheus.yml"], ["check", "rules", DEPLOY / "rules.yml"]):
        done = subprocess.run([*promtool, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    for address in addresses.values():
        told = fetch(address, "/metrics")
        done = subprocess.run([*promtool, "check", "metrics"], input=told, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_prometheus_scrapes_both_and_works_out_every_rule(addresses, tmp_path):
    settings = YAML(typ="safe", pure=True).load((DEPLOY / "prometheus.yml").read_text())
    settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    settings["rule_files"] = [str(DEPLOY / "rules.yml")]
    for job in settings["scrape_configs"]:
        job["static_configs"] = [{"targets": [addresses[job["job_name"].removeprefix("eacgm-")]]}]
    configuration = tmp_path / "prometheus.yml"
    YAML().dump(settings, configuration)
    words = [f"--config.file={configuration}", f"--storage.tsdb.path={tmp_path}/data"]
    server = Service([*debian("prometheus"), *words], tmp_path)
    try:
        eventually(lambda: values(server, "up") == {"eacgm-worker": 1.0, "eacgm-agent": 1.0})
        assert values(server, "eacgm_jobs") == {"eacgm-worker": 0.0}
        assert values(server, "sum by (job) (eacgm_lag_messages)").keys() == {"eacgm-worker"}
        rules = eventually(lambda: evaluated(server))
        assert {rule["health"] for rule in rules} == {"ok"}
        assert len(rules) == sum(
            len(group["rules"]) for group in YAML(typ="safe", pure=True).load(DEPLOY / "rules.yml")["groups"]
        )
        assert {rule["name"] for rule in rules if rule["alerts"]} == set()
    finally:
        server.stop()


def ask(server, path):
    with urllib.request.urlopen(f"{server.url}/api/v1/{path}", timeout=10) as answer:
        return json.loads(answer.read())["data"]


def values(server, query):
    found = ask(server, "query?" + urllib.parse.urlencode({"query": query}))["result"]
    return {one["metric"]["job"]: float(one["value"][1]) for one in found}


def evaluated(server):
    rules = [rule for group in ask(server, "rules")["groups"] for rule in group["rules"]]
    return rules if rules and all(rule["health"] != "unknown" for rule in rules) else []
