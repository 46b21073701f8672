import pytest

from eacgm.events import FrameEvent, HostEvent
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
