"""A stretch of topics, and the commands around it, on a real broker."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fleet import PARTITIONS, renamed, replayed

from eacgm.events import AlertEvent, HostEvent
from eacgm.kafka.clients import open_admin, open_producer
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.kafka.topics import create, wanted
from eacgm.producers.simulation import simulate
from eacgm.producers.simulation_plan import ClusterPlan
from eacgm.schemas import encode
from eacgm.schemas.recording import RecordingReader
from eacgm.streams.replay import replay
from eacgm.streams.stretch import Stretch

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
RECORDING = Path(__file__).parents[2] / "eacgm" / "data" / "demo-slow.recording"


def kept_for_ever(topic):
    """Return a topic that keeps the shipped recording, which is older than the usual retention, by its own times."""
    return replace(topic, settings=topic.settings | {"retention.ms": "-1"})


class Shore:
    """A broker with the topics, and eacgm's commands on it."""

    def __init__(self, broker):
        self.connection = Connection(bootstrap=broker.bootstrap)
        self.complaints = Complaints(self.connection)
        topics = [kept_for_ever(topic) for topic in wanted(PARTITIONS, 1)]
        assert len(create(open_admin(self.connection, self.complaints), topics)) == len(topics)
        self.environment = {**os.environ, "EACGM_KAFKA_BOOTSTRAP": broker.bootstrap}

    def call(self, *arguments, status=0):
        command = [sys.executable, "-m", "eacgm", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=self.environment)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done

    def write(self, events, topic=None):
        producer = open_producer(self.connection, self.complaints)
        for event in events:
            producer.produce(
                topic or event.topic, key=event.job.encode(), value=encode(event), timestamp=event.published_ns // 10**6
            )
            producer.poll(0)
        assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def shore(own_broker):
    return Shore(own_broker)


def test_a_stretch_is_what_was_written_in_the_same_order_each_time(shore):
    # more than a topic-partition may hold back, in several jobs
    now_ns = time.time_ns() - 10**12
    events = []
    for job in ("stretch-a", "stretch-b", "stretch-c"):
        events += renamed(simulate(ClusterPlan(n_ranks=16, seconds=150, seed=len(job))), job)
    shift = now_ns - max(event.published_ns for event in events)
    for event in events:
        for name in ("start_ns", "end_ns", "published_ns"):
            setattr(event, name, getattr(event, name) + shift)
    events.sort(key=lambda event: event.published_ns)
    shore.write(events)
    since = events[len(events) // 2].published_ns
    readings = [
        [event for event in Stretch(shore.connection, since_ns=since) if event.job.startswith("stretch-")]
        for _ in range(2)
    ]
    assert readings[0] == readings[1]
    assert len({event.job for event in readings[0]}) == 3
    for job in ("stretch-a", "stretch-b", "stretch-c"):
        ours = [event for event in readings[0] if event.job == job]
        written = [event for event in events if event.job == job and event.published_ns >= since]
        assert len(ours) >= len(written)
        assert {(e.topic, e.node, e.sequence) for e in written} <= {(e.topic, e.node, e.sequence) for e in ours}
        assert [e.published_ns for e in ours] == sorted(e.published_ns for e in ours)


def test_published_recorded_and_replayed_a_recording_says_the_same(shore, tmp_path):
    told = shore.call("publish", RECORDING, "--job", "shipped")
    assert "events delivered" in told.stderr
    direct = shore.call("replay", RECORDING, "--json").stdout.replace('"job":"demo"', '"job":"shipped"')
    by_kafka = [
        shore.call("replay", f"kafka://{shore.connection.bootstrap}", "--job", "shipped", "--json").stdout
        for _ in range(2)
    ]
    assert by_kafka[0] == by_kafka[1]
    out = tmp_path / "again"
    shore.call("record", "--out", out, "--job", "shipped")
    from_record = shore.call("replay", out, "--json").stdout
    assert from_record == by_kafka[0]
    said = replayed(renamed(RecordingReader(RECORDING), "shipped"))
    assert {json.loads(line)["id"] for line in from_record.splitlines()} == said.alerts.keys()
    assert len(direct.splitlines()) == len(from_record.splitlines())
    refused = shore.call("record", "--out", out, status=1)
    assert "is not empty" in refused.stderr
    everything = shore.call("replay", f"kafka://{shore.connection.bootstrap}", "--json")
    assert "look at each job alone" in everything.stderr  # the jobs of the test before are newer
    nothing = shore.call("record", "--out", tmp_path / "none", "--job", "nobody", status=1)
    assert "no event lies there" in nothing.stderr


def test_replayed_alerts_go_to_a_second_topic_and_are_compared(shore, tmp_path):
    shore.call("publish", RECORDING, "--job", "second look")
    kafka = f"kafka://{shore.connection.bootstrap}"
    shore.call("replay", kafka, "--job", "second look", "--alerts-topic", "second-look")
    old = tmp_path / "old.jsonl"
    old.write_text(shore.call("alerts", "--exit-at-end", "--topic", "second-look", "--json").stdout)
    assert old.read_text().count("\n") >= 2
    for before in (old, "second-look"):
        same = shore.call("replay", kafka, "--job", "second look", "--compare", before)
        assert "0 new, 0 gone, 0 changed" in same.stderr
    slower = ("--set", "alert.resolve_windows=20")
    other = shore.call("replay", kafka, "--job", "second look", "--compare", old, "--json", *slower)
    assert '"difference":"changed"' in other.stdout
    gone = shore.call("replay", RECORDING, "--compare", old, "--json")
    kinds = [json.loads(line).get("difference") for line in gone.stdout.splitlines()]
    assert kinds.count("new") == kinds.count("gone") >= 1  # another job's name
    live = shore.call("replay", kafka, "--alerts-topic", "eacgm.alerts.v1", status=2)
    assert "is what workers write to" in live.stderr
    unknown = shore.call("replay", RECORDING, "--compare", tmp_path / "missing", status=2)
    assert "no file" in unknown.stderr


def alert(number, **fields):
    usual = {"job": "paged", "id": f"id-{number}", "incident": f"i{number}", "start_ns": 0, "end_ns": 1}
    return AlertEvent(**(usual | {"published_ns": time.time_ns(), "summary": f"number {number}"} | fields))


def test_alerts_are_printed_once_filtered_and_followed(shore):
    shore.write([alert(1), alert(2, severity="critical"), alert(1), alert(3, job="another")])
    producer = open_producer(shore.connection, shore.complaints)
    producer.produce(AlertEvent.topic, key=b"paged", value=b"rubbish")
    producer.flush(10)
    all_of_them = shore.call("alerts", "--exit-at-end", "--job", "paged", "--json")
    assert [json.loads(line)["id"] for line in all_of_them.stdout.splitlines()] == ["id-1", "id-2"]
    assert "no alerts and were left out" in all_of_them.stderr
    grave = shore.call("alerts", "--exit-at-end", "--job", "paged", "--severity", "critical")
    assert grave.stdout.count("\n") == 1
    later = shore.call("alerts", "--exit-at-end", "--job", "paged", "--since", str(time.time() + 60))
    assert later.stdout == ""
    follower = subprocess.Popen(
        [sys.executable, "-m", "eacgm", "alerts", "--follow", "--job", "paged", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env=shore.environment,
    )
    try:
        assert [json.loads(follower.stdout.readline())["id"] for _ in range(2)] == ["id-1", "id-2"]
        shore.write([alert(2, severity="critical"), alert(4)])
        assert json.loads(follower.stdout.readline())["id"] == "id-4"
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(20) == 0
    finally:
        follower.kill()
        follower.wait()
        follower.stdout.close()


def test_publishing_keeps_pace_and_can_be_stopped(shore):
    began = time.monotonic()
    command = [sys.executable, "-m", "eacgm", "publish", str(RECORDING), "--speed", "1x", "--job", "slowly"]
    publisher = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=shore.environment)
    time.sleep(4)
    publisher.send_signal(signal.SIGINT)
    _, told = publisher.communicate(timeout=60)
    seconds = time.monotonic() - began
    assert publisher.returncode == 0
    assert "stopped early" in told
    hosts = [e for e in RecordingReader(RECORDING) if isinstance(e, HostEvent)]
    first = min(e.published_ns for e in hosts)
    sent = [e for e in Stretch(shore.connection) if e.job == "slowly" and isinstance(e, HostEvent)]
    assert 0 < len(sent) <= sum(e.published_ns - first <= seconds * 1e9 for e in hosts)


def test_what_cannot_be_is_told_in_one_line(shore, tmp_path):
    for arguments, status, words in (
        (("replay", "kafka://127.0.0.1:1"), 1, "127.0.0.1:1"),
        (("replay", f"kafka://{shore.connection.bootstrap}", "--since", "1", "--until", "2"), 1, "no event lies"),
        (("replay", "kafka://x", "--since", "2", "--until", "1"), 2, "not before --until"),
        (("alerts", "--topic", "nobody-made-it", "--exit-at-end"), 1, "no topic nobody-made-it"),
        (("alerts", "--topic", "nobody-made-it", "--exit-at-end"), 1, "look for its name"),
        (("publish", tmp_path), 1, "no recording here"),
        (("publish", RECORDING, "--speed", "fast"), 2, "is no speed"),
        (("record", "--bootstrap", "127.0.0.1:1", "--out", tmp_path / "out"), 1, "127.0.0.1:1"),
    ):
        done = shore.call(*arguments, status=status)
        assert words in done.stderr.splitlines()[-1], done.stderr


def test_a_stretch_without_events_leaves_no_folder(shore, tmp_path):
    (tmp_path / "there").mkdir()
    for name in ("new", "there"):
        done = shore.call("record", "--job", "nobody", "--out", tmp_path / name, status=1)
        assert "no event lies there" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_replay_of_a_stretch_equals_replay_of_its_events(shore):
    shore.call("publish", RECORDING, "--job", "equal")
    events = renamed(RecordingReader(RECORDING), "equal")
    until = max(event.end_ns for event in events) - 20 * 10**9
    wanted_events = list(replay(events, until_ns=until))
    stretch = Stretch(shore.connection, until_ns=until, job="equal")
    found = list(replay(stretch, until_ns=until, job="equal"))
    assert [event for event in found if isinstance(event, AlertEvent)] == [
        event for event in wanted_events if isinstance(event, AlertEvent)
    ]
    assert len(found) == len(wanted_events)
