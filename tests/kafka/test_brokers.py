"""The brokers of the tests are real: what is sent is read, a killed node loses nothing, a password is asked for."""

import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from local_kafka import NO_JAVA

pytestmark = pytest.mark.kafka


def make_topic(settings, topic, replicas=1):
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(topic, 1, replicas)])[topic].result(30)


def send(settings, topic, payloads):
    failed = []
    producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 5})
    for payload in payloads:
        producer.produce(topic, payload, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert not failed


def read(settings, topic, count):
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = []
    until = time.monotonic() + 60
    while len(found) < count and time.monotonic() < until:
        found += [message.value() for message in consumer.consume(count - len(found), 1.0)]
    consumer.close()
    return found


def test_what_is_sent_is_read(kafka_broker):
    settings = {"bootstrap.servers": kafka_broker.bootstrap}
    make_topic(settings, "brokers-plain")
    sent = [str(n).encode() for n in range(23)]
    send(settings, "brokers-plain", sent)
    assert read(settings, "brokers-plain", 23) == sent


def test_secure_broker_takes_the_password(sasl_broker):
    settings = {
        "bootstrap.servers": sasl_broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": sasl_broker.user,
        "sasl.password": sasl_broker.password,
        "ssl.ca.location": str(sasl_broker.certificates.authority),
    }
    make_topic(settings, "brokers-secure")
    send(settings, "brokers-secure", [b"one"])
    assert read(settings, "brokers-secure", 1) == [b"one"]


@pytest.mark.slow
def test_three_nodes_survive_the_loss_of_one(kafka_cluster):
    settings = {"bootstrap.servers": kafka_cluster.bootstrap}
    make_topic(settings, "brokers-three", replicas=3)
    send(settings, "brokers-three", [b"before"])
    lost = kafka_cluster.nodes[2]
    lost.kill()
    try:
        send(settings, "brokers-three", [b"during"])
    finally:
        lost.start()
    assert read(settings, "brokers-three", 2) == [b"before", b"during"]


def test_a_broker_dies_with_killed_tests(kafka_broker, tmp_path):
    """Whoever starts a broker and is killed with SIGKILL leaves none behind."""
    if not shutil.which("java"):
        pytest.skip(NO_JAVA)
    program = f"""
        import os, sys, time
        sys.path.insert(0, {os.fspath(Path(__file__).parents[1] / "support")!r})
        from pathlib import Path
        from local_kafka import Cluster
        (node,) = Cluster.make(Path({os.fspath(tmp_path)!r})).nodes
        node.launch()
        while Path(f"/proc/{{node.process.pid}}/comm").read_text() != "java\\n":
            time.sleep(0.01)
        print(node.process.pid, flush=True)
        os.kill(os.getpid(), 9)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True, check=False
    )
    jvm = Path("/proc") / str(int(done.stdout))
    until = time.monotonic() + 30
    while alive(jvm) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(jvm)


def alive(process: Path) -> bool:
    try:
        return process.joinpath("stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
