import pytest

from eacgm.events import FrameEvent, HostEvent, ProcessEvent
from eacgm.schemas.recording import RecordingReader, RecordingWriter
from eacgm.streams.replay import replay

SECOND = 1_000_000_000


@pytest.fixture
def events():
    return [
        HostEvent(
            job="j",
            rank=rank,
            start_ns=s * SECOND,
            end_ns=(s + 1) * SECOND,
            published_ns=(s + 1) * SECOND,
            cpu_seconds=1.0,
        )
        for s in range(30)
        for rank in range(3)
    ]


def starts(out):
    return [e.start_ns // SECOND for e in out if isinstance(e, FrameEvent)]


def test_everything_is_replayed_in_order(events):
    assert starts(replay(events)) == list(range(30))


def test_twice_gives_the_same(events):
    assert list(replay(events)) == list(replay(events))


def test_a_stretch_can_be_picked(events):
    assert starts(replay(events, since_ns=5 * SECOND, until_ns=9 * SECOND)) == [5, 6, 7, 8]


def test_progress_is_reported_to_the_end(events, tmp_path):
    with RecordingWriter(tmp_path / "r") as writer:
        for event in events:
            writer.write(event)
    reports = []
    reader = RecordingReader(tmp_path / "r")
    list(replay(reader, until_ns=20 * SECOND, on_progress=lambda p: reports.append((p.events, p.skipped, p.share))))
    ((events_pushed, skipped, share),) = reports
    assert (events_pushed, skipped) == (60, 30)
    assert share == 1.0


def test_who_the_processes_are_is_known_from_before_a_stretch(events):
    told = [
        ProcessEvent(
            job="j", rank=rank, pid=rank + 1, world_size=5, start_ns=0, end_ns=SECOND, published_ns=SECOND, state=state
        )
        for rank, state in ((0, "running"), (4, "exited"))
    ]
    frames = [e for e in replay([*told, *events], since_ns=5 * SECOND) if isinstance(e, FrameEvent)]
    assert frames[0].start_ns == 5 * SECOND
    assert frames[0].ranks.tolist() == [0, 1, 2, 3, 4]  # the world's size was told before
    assert list(replay([*told, *events], since_ns=SECOND * 100)) == []


def test_one_job_can_be_picked(events):
    others = [HostEvent(job="other", rank=7, start_ns=e.start_ns, end_ns=e.end_ns) for e in events]
    assert list(replay(sorted([*events, *others], key=lambda e: e.end_ns), job="j")) == list(replay(events))
