"""The examples of docs/consumers.md, run as they stand there."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from fleet import PARTITIONS

from eacgm.alerts import alerts
from eacgm.errors import BrokerError, ConfigError
from eacgm.events import AlertEvent
from eacgm.kafka.clients import open_admin, open_producer
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.kafka.publisher import Publisher
from eacgm.kafka.topics import create, wanted
from eacgm.schemas.framing import Framing
from eacgm.schemas.registry import Registry, RegistryAddress

pytestmark = pytest.mark.kafka
PAGE = (Path(__file__).parents[2] / "docs" / "consumers.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def written(new_broker, schema_registry):
    """Return the address of a broker with three alerts, one of them written twice, in the registry's framing."""
    connection = Connection(bootstrap=new_broker().bootstrap)
    complaints = Complaints(connection)
    create(open_admin(connection, complaints), wanted(PARTITIONS, 1))
    registry = Registry(RegistryAddress(url=schema_registry.url))
    publisher = Publisher(connection, Framing(registry), complaints)
    for number in (1, 2, 2, 3):
        publisher.publish(
            AlertEvent(
                job="j", id=f"a{number}", incident="i", start_ns=0, end_ns=1, published_ns=time.time_ns(),
                cause="hang", ranks=np.array([number]), summary=f"number {number}",
            )
        )  # fmt: skip
    assert publisher.flush(30) == 0
    registry.close()
    return connection.bootstrap


def run(example, broker, registry):
    code = example.replace("kafka:9092", broker).replace("http://registry:8080/apis/ccompat/v7", registry)
    environment = {**os.environ, "EACGM_KAFKA_REGISTRY": registry}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=90, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_examples_print_the_alerts(written, schema_registry):
    ours, plain = EXAMPLES
    expected = [f"open warning hang [{number}] number {number}" for number in (1, 2, 3)]
    assert run(ours, written, schema_registry.url) == expected
    assert run(plain, written, schema_registry.url) == [expected[0], expected[1], expected[1], expected[2]]


def test_following_goes_on_and_trouble_is_an_error_of_ours(kafka_broker, monkeypatch):
    connection = Connection(bootstrap=kafka_broker.bootstrap)
    create(open_admin(connection, Complaints(connection)), wanted(PARTITIONS, 1))
    since_ns = time.time_ns() - 10**9
    following = alerts(kafka_broker.bootstrap, since_ns=since_ns)
    producer = open_producer(connection, Complaints(connection))
    event = AlertEvent(job="followed", id=f"followed-{since_ns}", start_ns=0, end_ns=1)
    producer.produce(event.topic, key=b"followed", value=Framing().encode(event))
    assert producer.flush(30) == 0
    assert next(alert for alert in following if alert.job == "followed") == event
    following.close()
    monkeypatch.delenv("EACGM_KAFKA_BOOTSTRAP", raising=False)
    with pytest.raises(ConfigError):
        next(alerts())
    with pytest.raises(BrokerError, match="no topic"):
        next(alerts(kafka_broker.bootstrap, topic="nobody-made-this-one"))
