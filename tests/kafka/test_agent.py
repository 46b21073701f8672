"""The agent on a real broker: what it sees of real processes arrives, in order and once."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise

import pytest
from fleet import PARTITIONS

from eacgm.events import HostEvent, ProcessEvent
from eacgm.kafka.clients import open_admin, open_consumer
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.kafka.topics import create, wanted
from eacgm.schemas import decode

pytestmark = pytest.mark.kafka
RANK = "import time\nwhile True: sum(range(10000)); time.sleep(0.01)"


@pytest.fixture
def ranks():
    job = f"agent-test-{os.getpid()}"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RANK], env={"RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": job}
        )
        for rank in range(2)
    ]
    yield job
    for process in started:
        process.kill()
        process.wait()


def start(connection, log):
    command = [sys.executable, "-m", "eacgm", "agent", "--bootstrap", connection.bootstrap, "--interval-ms", "500"]
    return subprocess.Popen(command, stderr=log, text=True)


def messages(consumer, job, enough, seconds=60.0):
    found, until = [], time.monotonic() + seconds
    while time.monotonic() < until and not enough(found):
        for message in consumer.consume(200, timeout=0.5):
            assert message.error() is None
            if message.key() == job.encode():
                found.append(decode(message.value()))
    return found


def told_by_both(found):
    return all(sum(isinstance(event, HostEvent) and event.rank == rank for event in found) >= 5 for rank in (0, 1))


def test_what_the_agent_sees_arrives_once_and_sigterm_loses_nothing(new_broker, ranks, tmp_path):
    broker = new_broker()
    connection = Connection(bootstrap=broker.bootstrap)
    complaints = Complaints(connection)
    create(open_admin(connection, complaints), wanted(PARTITIONS, 1))
    consumer = open_consumer(connection, complaints, {"group.id": "agent-test", "auto.offset.reset": "earliest"})
    consumer.subscribe([HostEvent.topic, ProcessEvent.topic])
    log = (tmp_path / "log").open("w+")
    agent = start(connection, log)
    try:
        found = messages(consumer, ranks, told_by_both)
        assert told_by_both(found), (tmp_path / "log").read_text()
        # the broker dies and comes back: what was seen meanwhile waits
        broker.nodes[0].kill()
        time.sleep(3)
        broker.nodes[0].start()
        found += messages(consumer, ranks, lambda some: told_by_both(some))
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(60) == 0
        found += messages(consumer, ranks, lambda some: False, seconds=5)
    finally:
        agent.kill()
        agent.wait()
        consumer.close()
        log.close()
    assert {event.world_size for event in found if isinstance(event, ProcessEvent)} == {2}
    for rank in (0, 1):
        hosts = sorted((event for event in found if isinstance(event, HostEvent) and event.rank == rank), key=start_ns)
        # one interval follows the other: none is missing, none came twice
        assert all(a.end_ns == b.start_ns for a, b in pairwise(hosts))
        assert len({event.sequence for event in hosts}) == len(hosts)
    closing = (tmp_path / "log").read_text().splitlines()[-1]
    assert " 0 waiting, 0 failed, 0 dropped" in closing


def start_ns(event):
    return event.start_ns


def test_an_absent_broker_is_told_in_one_line():
    command = [sys.executable, "-m", "eacgm", "agent", "--bootstrap", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr.splitlines()[-1]
