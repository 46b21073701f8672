"""Alerts from a real topic to real counterparts: each once, in order, also when either side dies."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest
from debian_program import Service, UnavailableError, command
from receiver import Receiver

from eacgm.events import AlertEvent
from eacgm.kafka.clients import open_admin, open_producer
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.kafka.topics import create, like_alerts
from eacgm.schemas import encode

pytestmark = pytest.mark.kafka


def alert(number, incident, **values):
    now = time.time_ns()
    usual = {
        "severity": "critical",
        "cause": "slow_compute",
        "layer": "host",
        "ranks": np.array([3]),
        "summary": "Slow.",
    }
    times = {"started_at_ns": now - 10**10, "detected_at_ns": now, "start_ns": now - 10**9, "end_ns": now}
    return AlertEvent(
        job="paged", id=f"id-{number}", incident=incident, published_ns=now, **{**times, **usual, **values}
    )


class Topic:
    def __init__(self, broker, name):
        self.name, self._connection = name, Connection(bootstrap=broker.bootstrap)
        self._complaints = Complaints(self._connection)
        create(open_admin(self._connection, self._complaints), [like_alerts(name, 1)])
        self.environment = {**os.environ, "EACGM_KAFKA_BOOTSTRAP": broker.bootstrap}

    def write(self, *alerts):
        producer = open_producer(self._connection, self._complaints)
        for one in alerts:
            producer.produce(self.name, key=b"paged", value=encode(one))
        assert producer.flush(30) == 0

    def command(self, *arguments):
        return [sys.executable, "-m", "eacgm", "alerts", "--topic", self.name, *map(str, arguments)]

    def call(self, *arguments, status=0):
        done = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, check=False, timeout=60, env=self.environment
        )
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    def start(self, *arguments):
        return subprocess.Popen(self.command(*arguments), stderr=subprocess.DEVNULL, env=self.environment)


def eventually(found, seconds=30):
    until = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_group_goes_on_where_it_was_and_repeats_nothing(kafka_broker, tmp_path):
    topic = Topic(kafka_broker, "sinks.webhook")
    topic.write(*(alert(number, f"i-{number}") for number in range(5)), alert(5, "i-5", severity="info"))
    (tmp_path / "key").write_text("signing\n")
    with Receiver() as receiver:
        sink = ("--to", f"webhook={receiver.url}/hook", "--secret-file", tmp_path / "key", "--severity", "warning")
        assert "5 posts delivered" in topic.call(*sink, "--exit-at-end")
        assert [body["id"] for body in receiver.bodies] == [f"id-{number}" for number in range(5)]
        assert all("X-Eacgm-Signature" in headers for _, headers, _ in receiver.posts)
        assert "0 posts delivered" in topic.call(*sink, "--exit-at-end")
        # a worker that took over says the last again, with the same id
        topic.write(alert(4, "i-4"), alert(6, "i-4", state="resolved", resolved_at_ns=time.time_ns()))
        assert "1 posts delivered" in topic.call(*sink, "--exit-at-end")
        assert receiver.bodies[-1]["id"] == "id-6"
        assert "6 posts delivered" in topic.call(*sink, "--exit-at-end", "--group", "another")


def test_killed_in_the_midst_nothing_is_lost_and_at_most_one_repeated(kafka_broker):
    topic = Topic(kafka_broker, "sinks.killed")
    topic.write(*(alert(number, f"i-{number}") for number in range(40)))
    with Receiver() as receiver:
        sink = ("--to", f"webhook={receiver.url}/hook", "--group", "killed")
        for count in (7, 19):
            sender = topic.start(*sink)
            eventually(lambda count=count: len(receiver.posts) >= count)
            sender.send_signal(signal.SIGKILL)
            sender.wait()
        topic.call(*sink, "--exit-at-end")
        ids = [body["id"] for body in receiver.bodies]
    assert list(dict.fromkeys(ids)) == [f"id-{number}" for number in range(40)]
    assert len(ids) <= 42


def test_a_sink_that_is_away_holds_the_group_and_ctrl_c_ends_it(kafka_broker):
    topic = Topic(kafka_broker, "sinks.away")
    topic.write(alert(1, "i-1"))
    with Receiver() as receiver:
        url = receiver.url
    sink = ("--to", f"webhook={url}/", "--group", "away")
    sender = topic.start(*sink)
    time.sleep(5)
    assert sender.poll() is None
    sender.send_signal(signal.SIGINT)
    assert sender.wait(20) == 0
    with Receiver(port=int(url.rpartition(":")[2])) as receiver:
        topic.call(*sink, "--exit-at-end")
        assert [body["id"] for body in receiver.bodies] == ["id-1"]


def test_debians_alertmanager_takes_an_incident_and_its_end(kafka_broker, tmp_path):
    try:
        words = command("prometheus-alertmanager", "prometheus-alertmanager")
    except UnavailableError as error:
        pytest.skip(str(error))
    (tmp_path / "am.yml").write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    words += [f"--config.file={tmp_path}/am.yml", f"--storage.path={tmp_path}/data", "--cluster.listen-address="]
    topic = Topic(kafka_broker, "sinks.alertmanager")
    server = Service(words, tmp_path)
    try:
        topic.write(alert(1, "i-1"), alert(2, "i-2"), alert(3, "i-1", state="update", ranks=np.array([3, 4])))
        sink = ("--to", f"alertmanager={server.url}", "--exit-at-end")
        topic.call(*sink)
        assert sorted(active(server)) == [("i-1", "3,4", "Slow."), ("i-2", "3", "Slow.")]
        topic.write(alert(4, "i-2", state="resolved", resolved_at_ns=time.time_ns()))
        topic.call(*sink)
        assert active(server) == [("i-1", "3,4", "Slow.")]
    finally:
        server.stop()


def active(server):
    with urllib.request.urlopen(f"{server.url}/api/v2/alerts?active=true", timeout=10) as answer:
        told = json.loads(answer.read())
    return [(one["labels"]["incident"], one["labels"]["ranks"], one["annotations"]["summary"]) for one in told]


def test_wrong_uses_are_told_in_one_line(kafka_broker):
    topic = Topic(kafka_broker, "sinks.wrong")
    for arguments, words in (
        (("--to", "pager=http://x"), "expected alertmanager, webhook, slack, pagerduty"),
        (("--to", "pagerduty"), "expected --secret-file"),
        (("--to", "webhook=http://127.0.0.1:1", "--json"), "leave one of them out"),
        (("--group", "alone"), "go with --to"),
        (("--to", "slack=@/nowhere"), "/nowhere: cannot be read"),
    ):
        assert words in topic.call(*arguments, status=2)
