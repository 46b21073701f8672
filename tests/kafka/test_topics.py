"""Topics on a real cluster: made once, told where they differ, changed only when asked."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from eacgm.events import EVENT_OF_TOPIC
from eacgm.kafka.clients import open_admin
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.kafka.topics import Topic, alter, create, differences, usual_replicas, wanted
from eacgm.schemas.store import schemas

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory):
    """A broker whose topics nobody else makes."""
    from local_kafka import Cluster, UnavailableError

    try:
        broker = Cluster.start(tmp_path_factory.mktemp("topics"))
    except UnavailableError as error:
        pytest.skip(str(error))
    yield broker
    broker.stop()


@pytest.fixture
def admin(kafka_broker):
    connection = Connection(bootstrap=kafka_broker.bootstrap)
    return open_admin(connection, Complaints(connection))


def topics(*arguments):
    command = [sys.executable, "-m", "eacgm", "topics", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_create_and_check_from_the_command_line(own_broker, schema_registry):
    where = ("--bootstrap", own_broker.bootstrap, "--partitions", "5", "--registry", schema_registry.url)
    expected = [*EVENT_OF_TOPIC, "eacgm-worker-snapshots-changelog"]

    before = topics("check", *where, "--json")
    assert before.returncode == 1
    told = [json.loads(line) for line in before.stdout.splitlines()]
    assert [one["topic"] for one in told if one["what"] == "missing"] == expected

    made = topics("create", *where)
    assert made.returncode == 0, made.stderr
    assert [line.split(":")[0] for line in made.stdout.splitlines() if "created" in line] == expected
    assert made.stdout.count(": schema ") == len(schemas())

    again = topics("create", *where)
    assert again.returncode == 0
    assert "created" not in again.stdout

    good = topics("check", *where)
    assert (good.returncode, good.stdout) == (0, "")
    assert f"{len(expected)} topics are as they should be" in good.stderr

    found = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    described = found.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in expected])
    policies = {resource.name: future.result(30)["cleanup.policy"].value for resource, future in described.items()}
    compacted = {name for name, policy in policies.items() if policy == "compact"}
    assert compacted == {"eacgm-worker-snapshots-changelog"}

    other = topics("check", "--bootstrap", own_broker.bootstrap, "--partitions", "6")
    assert other.returncode == 1
    assert other.stdout.splitlines()[0] == "eacgm.processes.v1: partitions is 5; expected 6"
    kept = topics("create", "--bootstrap", own_broker.bootstrap, "--partitions", "6")
    assert kept.returncode == 1
    assert "--alter changes it" in kept.stderr
    grown = topics("create", "--bootstrap", own_broker.bootstrap, "--partitions", "6", "--alter")
    assert grown.returncode == 0, grown.stderr
    assert "eacgm.calls.v1: partitions is now 6" in grown.stdout
    assert topics("check", "--bootstrap", own_broker.bootstrap, "--partitions", "6").returncode == 0


def test_settings_that_differ_are_told_and_altered(admin):
    admin.create_topics([NewTopic("differs", 2, 1, config={"retention.ms": "1000", "cleanup.policy": "compact"})])[
        "differs"
    ].result(30)
    settings = {"retention.ms": "5000", "cleanup.policy": "delete", "max.message.bytes": "1000"}
    topic = Topic("differs", 1, 2, settings)
    found = differences(admin, [topic])
    assert [str(one) for one in found] == [
        "differs: partitions is 2; expected 1",
        "differs: replicas is 1; expected 2",
        "differs: retention.ms is 1000; expected 5000",
        "differs: cleanup.policy is compact; expected delete",
    ]
    left = alter(admin, found)
    assert [one.what for one in left] == ["partitions", "replicas"]
    assert differences(admin, [topic]) == left


def test_what_is_kept_for_longer_is_no_difference(admin):
    topic = Topic("keeps", 1, 1, {"retention.ms": "5000"})
    assert create(admin, [topic]) == ["keeps"]
    assert create(admin, [topic]) == []
    for value in ("9000", "-1"):
        entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "keeps", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)
        assert differences(admin, [topic]) == []
    assert [one.found for one in differences(admin, [replace(topic, settings={"retention.ms": "-1"})])] == []
    shorter = replace(topic, name="forgets")
    assert create(admin, [shorter]) == ["forgets"]
    assert [one.found for one in differences(admin, [replace(shorter, settings={"retention.ms": "-1"})])] == ["5000"]


def test_a_cluster_keeps_what_most_replicas_have():
    three = {topic.name: topic for topic in wanted(12, usual_replicas(5))}
    assert {topic.partitions for topic in three.values()} == {12}
    assert {topic.replicas for topic in three.values()} == {3}
    assert {topic.settings["min.insync.replicas"] for topic in three.values()} == {"2"}
    assert {topic.settings["min.insync.replicas"] for topic in wanted(1, usual_replicas(1))} == {"1"}
