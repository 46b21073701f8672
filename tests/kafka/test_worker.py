"""Workers on a real broker: they say what a replay says, whatever happens to them."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fleet import Fleet, Said, fetch, renamed, replayed

from eacgm.config import Config
from eacgm.events import CallsEvent, HostEvent
from eacgm.kafka.connection import Connection
from eacgm.producers.simulation import simulate
from eacgm.producers.simulation_plan import ClusterPlan, parse_faults
from eacgm.schemas import encode
from eacgm.schemas.recording import RecordingReader
from eacgm.streams.embedded import EmbeddedShell

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RECORDING = Path(__file__).parents[2] / "eacgm" / "data" / "demo-slow.recording"
#: how often a worker is killed; the long run of the documentation has 20
KILLS = int(os.environ.get("EACGM_TEST_KILLS", "3"))

#: the end of a recording is taken for the end of the job sooner than in life
BRISK = ("--set", "window.idle_ms=4000")


@pytest.fixture
def fleet(new_broker, tmp_path):
    fleet = Fleet(Connection(bootstrap=new_broker().bootstrap), tmp_path)
    yield fleet
    fleet.stop()


def demo(job):
    return renamed(RecordingReader(RECORDING), job)


def simulated(job):
    plan = ClusterPlan(n_ranks=8, seconds=100, seed=5)
    return renamed(simulate(replace(plan, faults=parse_faults(["slow_compute@3:70-90"], plan))), job)


def finished(fleet, expected):
    """Whether every frame and alert that is expected has come."""

    def done():
        return all(
            job in fleet.said
            and fleet.said[job].frames.keys() >= said.frames.keys()
            and fleet.said[job].alerts.keys() >= said.alerts.keys()
            for job, said in expected.items()
        )

    return done


def embedded(events):
    said = Said()
    with EmbeddedShell(Config(), callbacks=[said.see]) as shell:
        for event in events:
            shell.publish(event)
    return said


def test_the_same_scenario_gives_the_same_alerts_through_every_shell(fleet):
    scenarios = {"demo": demo("demo"), "simulated": simulated("simulated")}
    expected = {job: replayed(events) for job, events in scenarios.items()}
    assert all(said.alerts for said in expected.values())
    for job, events in scenarios.items():
        embedded(events).assert_equals(expected[job])
        for _ in fleet.publish(events):
            pass
    fleet.start(*BRISK)
    fleet.start(*BRISK)
    fleet.read_until(finished(fleet, expected))
    for job, said in expected.items():
        fleet.said[job].assert_equals(said)
    assert fleet.dead == []
    assert fleet.stop() == [0, 0]
    assert list(fleet.start_folder.iterdir()) == []


def test_a_job_that_fell_silent_goes_on_at_the_worker_that_takes_it_over(fleet):
    expected = replayed(simulated("silent"))
    first = fleet.start("--set", "window.idle_ms=600000")
    for _ in fleet.publish(simulated("silent")):
        pass
    most = len(expected.frames) - 10
    fleet.read_until(lambda: "silent" in fleet.said and len(fleet.said["silent"].frames) > most)
    time.sleep(6.0)  # several snapshots: every message is acknowledged, none comes again
    assert len(fleet.said["silent"].frames) < len(expected.frames)
    first.send_signal(signal.SIGKILL)
    first.wait()
    fleet.start(*BRISK)
    fleet.read_until(finished(fleet, {"silent": expected}))
    fleet.said["silent"].assert_equals(expected)


def test_a_worker_that_is_told_to_end_leaves_nothing_to_be_done_again(fleet):
    events = simulated("handed")
    expected = replayed(events)
    for _ in fleet.publish(events):
        pass
    first = fleet.start("--metrics", "127.0.0.1:0", "--set", "window.idle_ms=600000")
    while "metrics at " not in fleet.log():
        assert first.poll() is None
    (address,) = [line.split("/")[2] for line in fleet.log().splitlines() if line.startswith("metrics at ")]
    # all is read, and hardly a snapshot written
    while f"eacgm_messages_read_total {float(len(events))}" not in fetch(address, "/metrics"):
        assert first.poll() is None
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == 0
    fleet.start(*BRISK)
    fleet.read_until(finished(fleet, {"handed": expected}))
    fleet.said["handed"].assert_equals(expected)
    assert fleet.stop() == [0, 0]
    told = [line for line in fleet.log().splitlines() if "messages, " in line and "dead letters" in line]
    assert [int(line.split()[0].replace(",", "")) for line in told] == [len(events), 0]


@pytest.mark.timeout(600)
def test_killed_workers_lose_nothing_and_count_nothing_twice(fleet):
    chance = random.Random(int(os.environ.get("EACGM_TEST_SEED", "1")))
    jobs = ("one", "two", "three")
    expected = {job: replayed(demo(job)) for job in jobs}
    workers = [fleet.start(), fleet.start()]
    kills, next_kill = 0, 12.0
    interleaved = sorted((event for job in jobs for event in demo(job)), key=lambda event: event.published_ns)
    for seconds in fleet.publish(interleaved, speed=1.0):
        if kills < KILLS and seconds > next_kill:
            # at any moment, also while the group still finds itself after the kill before
            victim = chance.randrange(2)
            workers[victim].send_signal(signal.SIGKILL)
            workers[victim].wait()
            workers[victim] = fleet.start()
            kills, next_kill = kills + 1, seconds + chance.uniform(3.0, 12.0)
            fleet.read(0.1)
    fleet.read_until(finished(fleet, expected))
    for job in jobs:
        fleet.said[job].assert_equals(expected[job])
    assert kills == KILLS


def test_poison_is_dead_lettered_and_the_partition_goes_on(fleet):
    events = demo("job")
    good = encode(events[0])
    stray = CallsEvent(job="job", start_ns=0, end_ns=1)
    future = HostEvent(job="job", start_ns=1, end_ns=time.time_ns() + 10**13)
    poison = {
        "begins with": (HostEvent.topic, b"job", os.urandom(100)),
        "no message": (HostEvent.topic, b"job", b""),
        "fingerprint": (HostEvent.topic, b"job", b"\xc3\x01" + b"\x00" * 40),
        "registry": (HostEvent.topic, b"job", b"\x00\x00\x00\x00\x63" + b"abc"),
        "holds a message of": (HostEvent.topic, b"job", encode(stray)),
        "more than an hour ahead": (HostEvent.topic, b"job", encode(future)),
        "has the key": (events[0].topic, b"another job", good),
        "bytes": (HostEvent.topic, b"job", b"\xc3\x01" + os.urandom(8 * 1024 * 1024)),
    }
    del poison["no message"]
    for topic, key, value in poison.values():
        fleet.produce(topic, key, value)
    for _ in fleet.publish(events):
        pass
    expected = {"job": replayed(events)}
    fleet.start(*BRISK)
    fleet.read_until(lambda: finished(fleet, expected)() and len(fleet.dead) >= len(poison))
    fleet.said["job"].assert_equals(expected["job"])
    reasons = [letter.reason for letter in fleet.dead]
    assert len(reasons) == len(poison)
    for words in poison:
        assert any(words in reason for reason in reasons), (words, reasons)
    assert {letter.origin for letter in fleet.dead} == {HostEvent.topic, events[0].topic}
    assert all(letter.place.startswith("partition ") for letter in fleet.dead)


def test_a_worker_tells_prometheus_what_it_does(fleet):
    events = demo("job")
    for _ in fleet.publish(events):
        pass
    fleet.produce(HostEvent.topic, b"job", b"rubbish")
    fleet.producer.flush(10)
    fleet.start("--metrics", "127.0.0.1:0", *BRISK)
    fleet.read_until(lambda: len(fleet.dead) == 1 and finished(fleet, {"job": replayed(events)})())
    (line,) = [line for line in fleet.log().splitlines() if line.startswith("metrics at ")]
    address = line.split("/")[2]
    text = fetch(address, "/metrics")
    told = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(told["eacgm_dead_letters_total"]) == 1
    assert float(told["eacgm_messages_read_total"]) == len(events) + 1
    assert float(told["eacgm_alerts_total"]) == 2
    assert float(told["eacgm_jobs"]) == 1
    assert float(told['eacgm_lag_messages{topic="eacgm.host.v1"}']) == 0
    assert float(told['eacgm_room_seconds_total{room="join"}']) > 0
    assert fetch(address, "/healthz") == "ok\n"


def test_a_worker_speaks_tls_and_says_who_it_is(sasl_broker, tmp_path):
    connection = Connection(
        bootstrap=sasl_broker.bootstrap,
        user=sasl_broker.user,
        password=sasl_broker.password,
        authority=str(sasl_broker.certificates.authority),
    )
    secret = tmp_path / "password"
    secret.write_text(sasl_broker.password)
    environment = {
        "EACGM_KAFKA_USER": sasl_broker.user,
        "EACGM_KAFKA_PASSWORD_FILE": str(secret),
        "EACGM_KAFKA_CA": str(sasl_broker.certificates.authority),
    }
    fleet = Fleet(connection, tmp_path, environment, group="secure-workers")
    events = demo("secure job")
    for _ in fleet.publish(events):
        pass
    expected = {"secure job": replayed(events)}
    fleet.start(*BRISK)
    fleet.read_until(finished(fleet, expected))
    fleet.said["secure job"].assert_equals(expected["secure job"])
    assert fleet.stop() == [0]
    assert sasl_broker.password not in fleet.log()


def worker(*arguments):
    command = [sys.executable, "-m", "eacgm", "worker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_missing_topics_and_absent_brokers_are_told_in_one_line(kafka_broker):
    missing = worker("--bootstrap", kafka_broker.bootstrap, "--group", "nobody-made-topics-for-it")
    assert missing.returncode == 1
    (line,) = missing.stderr.splitlines()
    assert "eacgm topics create" in line
    absent = worker("--bootstrap", "127.0.0.1:1")
    assert absent.returncode == 1
    (line,) = absent.stderr.splitlines()
    assert "127.0.0.1:1" in line
