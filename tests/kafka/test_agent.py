"""The agent on a real broker: what it sees of real processes arrives, in order and once."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise

import pytest
from fleet import PARTITIONS

from eacgm.events import CallsEvent, CollectivesEvent, HostEvent, ProcessEvent
from eacgm.kafka.clients import open_admin, open_consumer
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.kafka.spool import DiskBacklog
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


def start(connection, log, *options):
    command = [sys.executable, "-m", "eacgm", "agent", "--bootstrap", connection.bootstrap, "--interval-ms", "500"]
    command += options
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


def test_an_agent_begins_without_a_broker_dies_and_loses_nothing_that_was_spooled(new_broker, ranks, tmp_path):
    broker = new_broker()
    connection = Connection(bootstrap=broker.bootstrap)
    complaints = Complaints(connection)
    create(open_admin(connection, complaints), wanted(PARTITIONS, 1))
    broker.nodes[0].kill()
    spool, log = tmp_path / "spool", (tmp_path / "log").open("w+")
    agent = start(connection, log, "--spool", str(spool))
    try:
        until = time.monotonic() + 60
        while sum(path.stat().st_size for path in spool.glob("*.spool")) < 20_000:
            assert time.monotonic() < until, (tmp_path / "log").read_text()
            time.sleep(0.2)
        agent.kill()
        agent.wait()
        kept = DiskBacklog(spool, 10**9)
        # other jobs of this machine are in it too, and no concern of this test
        spooled = {event.sequence for letter in kept.head(10**9) if (event := decode(letter.value)).job == ranks}
        assert spooled
        kept.close()
        agent = start(connection, log, "--spool", str(spool))
        time.sleep(5)
        broker.nodes[0].start()
        consumer = open_consumer(connection, complaints, {"group.id": "spool", "auto.offset.reset": "earliest"})
        consumer.subscribe([kind.topic for kind in (HostEvent, ProcessEvent, CallsEvent, CollectivesEvent)])
        found = messages(consumer, ranks, lambda some: spooled <= {event.sequence for event in some})
        consumer.close()
        assert spooled <= {event.sequence for event in found}
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(60) == 0
    finally:
        agent.kill()
        agent.wait()
        log.close()
    text = (tmp_path / "log").read_text()
    assert "Kafka is away: readings wait until it is back" in text
    assert " 0 waiting, 0 failed, 0 dropped" in text.splitlines()[-1]
    for rank in (0, 1):
        hosts = [event for event in found if isinstance(event, HostEvent) and event.rank == rank]
        assert [event.sequence for event in hosts] == sorted({event.sequence for event in hosts})


def agent(*arguments, env=None):
    command = [sys.executable, "-m", "eacgm", "agent", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=env)


def test_what_waiting_cannot_mend_is_told_in_one_line(kafka_broker, sasl_broker, tmp_path):
    unknown = agent("--bootstrap", "no-such-host.invalid:9092")
    assert unknown.returncode == 1
    assert "no-such-host.invalid" in unknown.stderr.splitlines()[-1]
    secret = tmp_path / "password"
    secret.write_text("wrong")
    refused = agent(
        "--bootstrap", sasl_broker.bootstrap, "--user", "nobody", "--password-file", str(secret),
        "--ca", str(sasl_broker.certificates.authority),
    )  # fmt: skip
    assert refused.returncode == 1
    assert "authentication failed for user nobody" in refused.stderr.splitlines()[-1]
    (tmp_path / "file").write_text("")
    spool = agent("--bootstrap", kafka_broker.bootstrap, "--spool", str(tmp_path / "file" / "spool"))
    assert spool.returncode == 1
    assert all("Traceback" not in done.stderr for done in (unknown, refused, spool))
