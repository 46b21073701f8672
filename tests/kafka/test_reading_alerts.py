"""What docs/kafka.md says about reading alerts is run as it stands there."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from specimens import specimen

from eacgm.kafka.clients import open_admin, open_producer
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.schemas import schemas
from eacgm.schemas.cloudevents import alert_headers
from eacgm.schemas.framing import Framing
from eacgm.schemas.registry import Registry, RegistryAddress

pytestmark = pytest.mark.kafka
TOPIC = "eacgm.alerts.v1"
GUIDE = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text()


def block(language):
    """Return the guide's one block of a language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    return found


@pytest.fixture(scope="module")
def environment(kafka_broker, schema_registry):
    """A broker with two alerts of one incident, and the variables that the examples use."""
    connection = Connection(bootstrap=kafka_broker.bootstrap)
    admin = open_admin(connection, Complaints(connection))
    if TOPIC not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    registry = Registry(RegistryAddress(url=schema_registry.url))
    framing = Framing(registry)
    alert = replace(specimen(schemas()[TOPIC]), job="reading", incident="i-7", summary="Rank 605 is slow.")
    producer = open_producer(connection, Complaints(connection))
    for state in ("open", "resolved"):
        event = replace(alert, state=state, id=f"reading-{state}")
        producer.produce(TOPIC, framing.encode(event), event.job.encode(), headers=alert_headers(event))
    assert producer.flush(30) == 0
    registry.close()
    return {**os.environ, "BOOTSTRAP": kafka_broker.bootstrap, "REGISTRY": schema_registry.url}


def test_the_python_example_reads_alerts(environment):
    command = [sys.executable, "-W", "error", "-c", block("python")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "open severity cause [605, 611] Rank 605 is slow." in lines
    assert "resolved severity cause [605, 611] Rank 605 is slow." in lines


@pytest.mark.skipif(not shutil.which("kcat"), reason="no kcat; apt-get install kcat")
def test_the_kcat_example_tells_key_and_headers(environment):
    done = subprocess.run(["sh", "-c", block("sh")], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("reading ")]
    assert len(lines) == 2
    for line, state in zip(lines, ("open", "resolved"), strict=True):
        assert f"ce_id=reading-{state}" in line
        assert f"ce_type=io.eacgm.alert.{state}" in line
        assert "ce_subject=i-7" in line


def test_the_guide_names_every_option_and_topic():
    from eacgm.cli.kafka_options import _OPTIONS
    from eacgm.kafka.topics import wanted

    for option, *_ in _OPTIONS:
        assert f"`{option}`" in GUIDE
    for topic in wanted(1, 1):
        assert f"`{topic.name}`" in GUIDE
