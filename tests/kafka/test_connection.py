"""TLS, passwords and tokens on a broker that asks for them; and what is said when they are wrong."""

import asyncio
import base64
import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer
from confluent_kafka.admin import NewTopic
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

from eacgm.errors import BrokerError
from eacgm.kafka.clients import open_admin, open_consumer, open_producer, reach
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection

pytestmark = pytest.mark.kafka
TOPIC = "connection-test"


def part(content):
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def unsigned_token(name):
    """A JSON web token without a signature, as the broker's own validator for tests takes it."""
    claims = {"sub": name, "iat": time.time() - 5, "exp": time.time() + 600}
    return ".".join((part({"alg": "none"}), part(claims), ""))


@pytest.fixture(scope="module")
def by_password(sasl_broker):
    return Connection(
        bootstrap=sasl_broker.bootstrap,
        user=sasl_broker.user,
        password=sasl_broker.password,
        authority=str(sasl_broker.certificates.authority),
    )


@pytest.fixture(scope="module")
def by_certificate_too(by_password, sasl_broker):
    made = sasl_broker.certificates
    return replace(
        by_password,
        certificate=str(made.client_certificate),
        key=str(made.client_key),
        key_password=made.client_key_password,
    )


@pytest.fixture(scope="module")
def by_token(sasl_broker, tmp_path_factory):
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(unsigned_token(sasl_broker.user) + "\n")
    authority = str(sasl_broker.certificates.authority)
    return Connection(bootstrap=sasl_broker.bootstrap, token_file=str(file), authority=authority)


@pytest.fixture(params=["by_password", "by_certificate_too", "by_token"])
def connection(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def topic(by_password):
    admin = open_admin(by_password, Complaints(by_password))
    admin.create_topics([NewTopic(TOPIC, 3, 1)])[TOPIC].result(30)
    return TOPIC


@contextlib.contextmanager
def closing(client):
    yield client
    if isinstance(client, Consumer):
        client.close()


def test_librdkafkas_clients_get_in(connection, topic):
    for client in (
        open_admin(connection, Complaints(connection)),
        open_producer(connection, Complaints(connection)),
        open_consumer(connection, Complaints(connection), {"group.id": "get-in"}),
    ):
        with closing(client):
            assert topic in reach(client, Complaints(connection)).topics


def test_aiokafka_and_faust_get_in(connection, topic):
    async def topics(settings):
        consumer = AIOKafkaConsumer(**settings)
        await consumer.start()
        try:
            return await consumer.topics()
        finally:
            await consumer.stop()

    async def both():
        faust = credentials_to_aiokafka_auth(connection.faust_credentials())
        assert topic in await topics(connection.aiokafka())
        assert topic in await topics({"bootstrap_servers": connection.bootstrap, **faust})

    asyncio.run(both())


def test_keys_go_to_the_same_partition_from_both_libraries(by_password, topic):
    keys = [f"job-{number}".encode() for number in range(40)]
    ours = {}
    producer = open_producer(by_password, Complaints(by_password))
    for key in keys:
        producer.produce(topic, b"x", key, on_delivery=lambda _, sent: ours.update({sent.key(): sent.partition()}))
    assert producer.flush(30) == 0

    async def theirs():
        sender = AIOKafkaProducer(**by_password.aiokafka())
        await sender.start()
        try:
            return {key: (await sender.send_and_wait(topic, b"x", key)).partition for key in keys}
        finally:
            await sender.stop()

    assert asyncio.run(theirs()) == ours
    assert len(set(ours.values())) == 3


def wrong(sasl_broker):
    right = {
        "bootstrap": sasl_broker.bootstrap,
        "user": sasl_broker.user,
        "password": sasl_broker.password,
        "authority": str(sasl_broker.certificates.authority),
    }
    return {
        "password": (right | {"password": "hunter2"}, "authentication failed for user eacgm at 127.0.0.1"),
        "mechanism": (right | {"mechanism": "PLAIN"}, "supported mechanisms: SCRAM-SHA-512"),
        "authority": ({**right, "authority": ""}, "no TLS connection to 127.0.0.1"),
        "host": ({"bootstrap": "nowhere.invalid:9092"}, "the host of nowhere.invalid:9092 is unknown"),
        "port": ({"bootstrap": "127.0.0.1:9"}, "Kafka at 127.0.0.1:9 does not answer: .*refused"),
        "protocol": ({"bootstrap": sasl_broker.bootstrap}, "answers over PLAINTEXT; check"),
        "token": ({"bootstrap": right["bootstrap"], "authority": right["authority"], "token": "x"}, "invalid_token"),
    }


@pytest.mark.parametrize("what", ["password", "mechanism", "authority", "host", "port", "protocol", "token"])
def test_what_is_wrong_is_said_in_one_line(sasl_broker, what):
    settings, reason = wrong(sasl_broker)[what]
    connection = Connection(**settings)
    complaints = Complaints(connection)
    client = open_producer(connection, complaints)
    with pytest.raises(BrokerError, match=reason) as told:
        reach(client, complaints, 2.5)
    assert "\n" not in str(told.value)
    assert "hunter2" not in str(told.value)


def eacgm(*arguments, **environment):
    """Run the program in a process of its own: librdkafka writes past Python's own standard error."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("EACGM_KAFKA")}
    command = [sys.executable, "-m", "eacgm", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables | environment)


def test_a_command_says_one_line_and_no_secret(sasl_broker):
    authority = str(sasl_broker.certificates.authority)
    done = eacgm(
        *("topics", "check", "--bootstrap", sasl_broker.bootstrap, "--user", sasl_broker.user, "--ca", authority),
        EACGM_KAFKA_PASSWORD="hunter2",
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"eacgm: error: authentication failed for user {sasl_broker.user}")
    assert done.stderr.count("\n") == 1
    assert "hunter2" not in done.stderr


def test_who_may_not_create_topics_is_told(sasl_broker, tmp_path):
    secret = tmp_path / "password"
    secret.write_text(sasl_broker.stranger_password)
    done = eacgm(
        *("topics", "create", "--bootstrap", sasl_broker.bootstrap, "--user", sasl_broker.stranger),
        *("--password-file", str(secret), "--ca", str(sasl_broker.certificates.authority)),
    )
    assert done.returncode == 1
    assert done.stderr == "eacgm: error: Kafka refuses: Authorization failed. (TOPIC_AUTHORIZATION_FAILED)\n"
