"""The agent on checked-in nodes, by a clock that the test moves."""

import shutil
from pathlib import Path

import pytest

from eacgm.events import CallsEvent, HostEvent, ProcessEvent
from eacgm.producers.agent import Agent
from eacgm.producers.clock import ClockReading
from eacgm.schemas import decode, encode

FIXTURES = Path(__file__).parent / "fixtures"
SECOND = 1_000_000_000
T0 = 1_800_000_000 * SECOND


class Run:
    """An agent on a copy of a node, its events and its clock."""

    def __init__(self, root: Path, **options):
        self.root = root
        self.events = []
        self.now_ns = T0 + SECOND // 4
        self.agent = Agent(
            self.events.append, root=root, trace=False, gpus=False, node="n1", clock=self.read, **options
        )

    def read(self) -> ClockReading:
        return ClockReading(monotonic_ns=self.now_ns - T0, offset_ns=T0, error_ns=1500)

    def at(self, seconds: float) -> list:
        """Collect at so many seconds after T0; return what that published."""
        before = len(self.events)
        self.now_ns = T0 + round(seconds * SECOND)
        self.agent.collect()
        return self.events[before:]


@pytest.fixture
def v2(tmp_path):
    return Run(Path(shutil.copytree(FIXTURES / "node_v2", tmp_path / "v2", symlinks=True)))


@pytest.fixture
def v1(tmp_path):
    return Run(Path(shutil.copytree(FIXTURES / "node_v1", tmp_path / "node", symlinks=True)))


def interval(event):
    return (event.start_ns - T0) / SECOND, (event.end_ns - T0) / SECOND


def of(kind, events, **fields):
    return [e for e in events if isinstance(e, kind) and all(getattr(e, name) == v for name, v in fields.items())]


def test_intervals_end_at_whole_multiples_and_a_late_one_is_longer(v2):
    assert interval(v2.at(1.01)[0]) == (0.25, 1)
    assert interval(v2.at(2.3)[0]) == (1, 2)
    assert v2.at(2.9) == []
    assert interval(v2.at(5.9)[0]) == (2, 5)
    assert interval(v2.at(6.0)[0]) == (5, 6)


def test_when_the_clock_is_set_back_intervals_go_on_from_its_new_time(v2):
    v2.at(10)
    sequence = v2.at(11)[-1].published_ns
    events = v2.at(3.5)
    assert interval(events[0]) == (2, 3)
    assert events[0].published_ns > sequence
    assert interval(v2.at(4)[0]) == (3, 4)


def test_a_process_is_told_with_its_identity_when_first_seen(v2):
    told = of(ProcessEvent, v2.at(1), pid=111)
    assert len(told) == 1
    event = told[0]
    assert (event.job, event.incarnation, event.rank, event.role, event.node) == ("llama-ft-7", 1, 5, "rank", "n1")
    assert (event.local_rank, event.world_size, event.local_world_size) == (1, 8, 2)
    assert (event.state, event.exit_code, event.command, event.clock_error_ns) == ("running", None, "python3", 1500)
    assert event.container is not None


def test_without_tracing_every_layer_says_why_it_is_not_seen(v2):
    layers = of(ProcessEvent, v2.at(1), pid=111)[0].layers
    assert {layer.layer for layer in layers} >= {"pytorch", "collective", "cuda", "python"}
    assert {(layer.status, layer.reason) for layer in layers} == {("failed", "tracing is switched off")}
    assert not of(CallsEvent, v2.at(2))


def test_a_rank_that_cannot_be_read_is_published_with_the_complaint(v1):
    event = of(ProcessEvent, v1.at(1), pid=203)[0]
    assert event.rank is None
    complaint = next(layer for layer in event.layers if layer.layer == "identity")
    assert complaint.status == "failed"
    assert "RANK is 'one'" in complaint.reason


def test_the_first_interval_has_gauges_and_later_ones_have_counters(v2):
    first = of(HostEvent, v2.at(1), pid=110)[0]
    assert first.rss_bytes is not None
    assert (first.cpu_seconds, first.io_read_bytes, first.throttled_seconds) == (None, None, None)
    io = v2.root / "proc/110/io"
    io.write_text(io.read_text().replace("4096000", "5000000"))
    second = of(HostEvent, v2.at(2), pid=110)[0]
    assert (second.cpu_seconds, second.io_read_bytes, second.throttled_seconds) == (0, 904_000, 0)
    assert second.run_queue_wait_seconds == 0


def test_workers_carry_the_number_of_their_rank(v2):
    worker = of(HostEvent, v2.at(1), pid=120)[0]
    assert (worker.role, worker.rank, worker.job) == ("worker", 4, "llama-ft-7")


def test_a_stopped_process_is_told_as_stopped(v1):
    events = v1.at(1)
    assert of(HostEvent, events, pid=202)[0].stopped is True
    assert of(HostEvent, events, pid=201)[0].stopped is False


def test_identities_are_told_again_every_thirty_seconds(v2):
    times = [second for second in range(1, 95) if of(ProcessEvent, v2.at(second), pid=110)]
    assert times == [1, 31, 61, 91]


def test_an_exit_is_told_once_with_its_code(v2):
    v2.at(1)
    stat = v2.root / "proc/110/stat"
    head, _, tail = stat.read_text().rpartition(") ")
    words = tail.split()
    words[0], words[17], words[49] = "Z", "0", str(9)
    stat.write_text(f"{head}) {' '.join(words)}\n")
    told = of(ProcessEvent, v2.at(2), pid=110)
    assert [(event.state, event.exit_code) for event in told] == [("exited", -9)]
    assert not of(ProcessEvent, v2.at(3), pid=110)
    assert not of(HostEvent, v2.at(4), pid=110)


def test_the_node_is_told_for_every_job_in_every_interval_and_a_minute_longer(v2):
    nodes = of(HostEvent, v2.at(1), role="node")
    assert [(node.job, node.incarnation, node.rank, node.pid) for node in nodes] == [("llama-ft-7", 1, None, 0)]
    for pid in (110, 111, 120):
        shutil.rmtree(v2.root / f"proc/{pid}")
    told = [second for second in range(2, 100) if of(HostEvent, v2.at(second), role="node")]
    assert told == list(range(2, 62))


def test_the_node_event_comes_last(v2):
    for second in (1, 2, 3):
        assert v2.at(second)[-1].role == "node"


def test_sequence_and_publication_only_grow(v2):
    for second in range(1, 6):
        v2.at(second)
    first = v2.events[0].sequence
    assert [event.sequence for event in v2.events] == list(range(first, first + len(v2.events)))
    published = [event.published_ns for event in v2.events]
    assert published == sorted(set(published))


def test_a_restarted_agent_goes_on_above_the_numbers_of_the_one_before(v2):
    v2.at(1)
    again = Run(v2.root)
    again.at(1)
    assert again.events[0].sequence > v2.events[-1].sequence


def test_what_was_lost_on_its_way_is_told_once_by_the_next_node_events(tmp_path):
    root = Path(shutil.copytree(FIXTURES / "node_v2", tmp_path / "v2", symlinks=True))
    losses = [0, 7, 0]
    run = Run(root, unsent=lambda: losses.pop(0))
    assert [run.at(second)[-1].lost for second in (1, 2, 3)] == [0, 7, 0]


def test_every_event_survives_its_encoding(v1, v2):
    for run in (v1, v2):
        for second in (1, 2):
            run.at(second)
        for event in run.events:
            assert decode(encode(event)) == event


def test_other_jobs_are_left_out(tmp_path):
    root = Path(shutil.copytree(FIXTURES / "node_v2", tmp_path / "node", symlinks=True))
    assert Run(root, only_jobs=["another"]).at(1) == []


def test_a_node_without_ranks_publishes_nothing(tmp_path):
    (tmp_path / "proc").mkdir()
    assert Run(tmp_path).at(1) == []


def test_the_agent_knows_what_it_costs(v2):
    v2.at(1)
    cost = v2.agent.cost()
    assert cost.cpu_seconds >= 0
    assert cost.rss_bytes is not None
    assert 5e6 < cost.rss_bytes < 5e9
