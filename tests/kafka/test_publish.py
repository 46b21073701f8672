"""Recordings to a real broker: what would be deleted at once gets the present time, unless told otherwise."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from eacgm.events import CallsEvent
from eacgm.kafka.clients import open_admin
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.kafka.topics import create, kept_ms, wanted
from eacgm.producers.simulation import simulate
from eacgm.producers.simulation_plan import ClusterPlan
from eacgm.schemas.recording import RecordingWriter

pytestmark = pytest.mark.kafka

DAY_NS = 86_400 * 10**9


@pytest.fixture
def broker(new_broker):
    broker = new_broker()
    connection = Connection(bootstrap=broker.bootstrap)
    create(open_admin(connection, Complaints(connection)), wanted(1, 1))
    return broker


def recording(folder: Path, age_ns: int) -> Path:
    events = list(simulate(ClusterPlan(n_ranks=2, seconds=5, seed=1)))
    shift = time.time_ns() - age_ns - events[0].published_ns
    with RecordingWriter(folder / f"{age_ns}.recording") as writer:
        for event in events:
            times = {name: getattr(event, name) + shift for name in ("start_ns", "end_ns", "published_ns")}
            writer.write(replace(event, **times))
    return folder / f"{age_ns}.recording"


def publish(broker, *arguments) -> str:
    command = [sys.executable, "-m", "eacgm", "publish", "--bootstrap", broker.bootstrap, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stderr


def ages_s(broker, job: str) -> list[float]:
    """Return how old Kafka takes a job's calls to be."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": job, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.subscribe([CallsEvent.topic])
    ages = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            break
        if message.key() == job.encode():
            ages.append(time.time() - message.timestamp()[1] / 1000)
    consumer.close()
    return ages


def test_an_old_recording_is_given_the_present_time_and_a_new_one_keeps_its_own(broker, tmp_path):
    old, new = recording(tmp_path, 30 * DAY_NS), recording(tmp_path, DAY_NS)
    assert "older than Kafka keeps" in publish(broker, old, "--job", "old")
    assert "older than Kafka keeps" not in publish(broker, new, "--job", "new")
    of_old, of_new = ages_s(broker, "old"), ages_s(broker, "new")
    assert len(of_old) == len(of_new) > 0
    assert max(of_old) < 120
    assert 86_000 < min(of_new) <= max(of_new) < 87_000


def test_what_topics_keep_is_that_of_the_most_forgetful(broker):
    connection = Connection(bootstrap=broker.bootstrap)
    admin = open_admin(connection, Complaints(connection))
    assert kept_ms(admin, [CallsEvent.topic, "eacgm.alerts.v1"]) == 3 * 86_400_000
    assert kept_ms(admin, ["eacgm-worker-snapshots-changelog"]) is None
