"""What an outbox is given arrives in its order, whatever happens to the broker and to the outbox's process."""

import threading
import time

import pytest
from confluent_kafka import Producer
from fleet import PARTITIONS

from eacgm.events import HostEvent
from eacgm.kafka.backlog import MemoryBacklog
from eacgm.kafka.clients import open_admin, open_consumer, open_producer
from eacgm.kafka.complaints import Complaints
from eacgm.kafka.connection import Connection
from eacgm.kafka.outbox import Outbox
from eacgm.kafka.spool import DiskBacklog
from eacgm.kafka.topics import create, wanted
from eacgm.schemas import decode
from eacgm.schemas.framing import Framing
from eacgm.schemas.registry import Registry, RegistryAddress

pytestmark = pytest.mark.kafka
#: messages that have not arrived by then fail, in these tests
ARRIVAL = {"message.timeout.ms": 1500}
MANY = 10**8


class Line:
    """A broker that may be away, and one job's topic on it."""

    def __init__(self, broker):
        self.broker, self.connection = broker, Connection(bootstrap=broker.bootstrap)
        self.complaints = Complaints(self.connection)
        create(open_admin(self.connection, self.complaints), wanted(PARTITIONS, 1))
        self.n_put = 0

    def outbox(self, backlog):
        return Outbox(lambda: open_producer(self.connection, self.complaints, ARRIVAL), Framing(), backlog)

    def put(self, outbox, count):
        for _ in range(count):
            self.n_put += 1
            outbox.publish(HostEvent(job="job", start_ns=self.n_put, end_ns=self.n_put + 1, sequence=self.n_put))

    def arrived(self, enough, seconds=40.0):
        """Return the sequences on the topic, in their order, once they are ``enough``."""
        consumer = open_consumer(
            self.connection, self.complaints, {"group.id": f"t{time.time_ns()}", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([HostEvent.topic])
        found, until = [], time.monotonic() + seconds
        while time.monotonic() < until and not enough(found):
            found += [decode(message.value()).sequence for message in consumer.consume(500, timeout=0.5)]
        consumer.close()
        return found


@pytest.fixture
def line(new_broker):
    return Line(new_broker())


def until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def first_times(numbers):
    """Return the numbers without repetitions, in the order in which each came first."""
    return list(dict.fromkeys(numbers))


def test_through_an_outage_everything_arrives_in_its_order(line):
    with line.outbox(MemoryBacklog(MANY)) as outbox:
        line.put(outbox, 50)
        until(lambda: outbox.delivered == 50)
        line.broker.nodes[0].kill()
        for _ in range(20):
            line.put(outbox, 20)
            time.sleep(0.15)
        until(lambda: outbox.kept >= 300)
        line.broker.nodes[0].start()
        line.put(outbox, 30)
        until(lambda: outbox.waiting == 0, 60)
        line.put(outbox, 20)
        assert outbox.close(20) == 0
        assert (outbox.failed, outbox.dropped) == (0, 0)
    numbers = line.arrived(lambda found: len(set(found)) == line.n_put)
    assert first_times(numbers) == list(range(1, line.n_put + 1))


def test_what_waits_on_disk_is_sent_by_the_next_process(line, tmp_path):
    line.broker.nodes[0].kill()
    for _ in range(2):
        outbox = line.outbox(DiskBacklog(tmp_path, MANY))
        with outbox:
            line.put(outbox, 40)
            outbox.close(0.1)
    line.broker.nodes[0].start()
    with line.outbox(DiskBacklog(tmp_path, MANY)) as outbox:
        assert outbox.kept == 80
        line.put(outbox, 5)
        until(lambda: outbox.waiting == 0)
        assert outbox.close(10) == 0
    assert line.arrived(lambda found: len(found) >= 85) == list(range(1, 86))


def test_without_room_the_oldest_go_and_are_told_once(line):
    line.broker.nodes[0].kill()
    with line.outbox(MemoryBacklog(20_000)) as outbox:
        line.put(outbox, 300)
        until(lambda: outbox.kept > 0 and outbox.dropped > 0)
        lost = outbox.take_losses()
        assert lost == outbox.dropped > 100
        assert outbox.take_losses() == 0
        line.broker.nodes[0].start()
        until(lambda: outbox.waiting == 0, 60)
        outbox.close(10)
    assert line.arrived(lambda found: len(found) >= 300 - lost) == list(range(lost + 1, 301))


def test_what_the_brokers_will_never_take_holds_nothing_up(line):
    def small():
        return open_producer(line.connection, line.complaints, {**ARRIVAL, "message.max.bytes": 1000})

    with Outbox(small, Framing(), MemoryBacklog(MANY)) as outbox:
        line.put(outbox, 1)
        outbox.publish(HostEvent(job="j" * 3000, start_ns=0, end_ns=1))
        line.put(outbox, 1)
        until(lambda: outbox.waiting == 0)
        assert (outbox.delivered, outbox.failed, outbox.take_losses()) == (2, 1, 1)


def test_publishing_waits_neither_for_brokers_nor_for_a_registry(tmp_path):
    connection = Connection(bootstrap="127.0.0.1:1")
    registry = Registry(RegistryAddress(url="http://10.255.255.1:8081"))  # answers nobody
    complaints = Complaints(connection)

    def producer() -> Producer:
        return open_producer(connection, complaints, ARRIVAL)

    with Outbox(producer, Framing(registry), DiskBacklog(tmp_path, MANY)) as outbox:
        publisher = threading.Thread(
            target=lambda: [outbox.publish(HostEvent(job="j", start_ns=0, end_ns=n)) for n in range(1000)]
        )
        publisher.start()
        publisher.join(1.0)
        assert not publisher.is_alive()
        assert outbox.close(0.0) == 1000
    registry.close()
    with_them = DiskBacklog(tmp_path, MANY)
    assert len(with_them) == 1000
    with_them.close()
