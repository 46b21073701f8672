import contextlib
import os
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from fastavro import reader

from eacgm.errors import InputError
from eacgm.events import HostEvent, SamplesEvent
from eacgm.schemas import recording
from eacgm.schemas.recording import RecordingReader, RecordingWarning, RecordingWriter


def host(n, **fields):
    return HostEvent(job="j", rank=0, start_ns=n, end_ns=n + 1, published_ns=n, sequence=n, **fields)


def sample(n):
    return SamplesEvent(job="j", rank=0, start_ns=n, end_ns=n + 1, published_ns=n, name=["x"], value=np.array([n / 3]))


def record(folder, events, partition=0):
    with RecordingWriter(folder, partition=partition) as writer:
        for event in events:
            writer.write(event)


def test_all_topics_come_back_merged_in_the_order_of_publication(tmp_path):
    events = [host(n) if n % 3 else sample(n) for n in range(1, 200)]
    record(tmp_path / "r", events)
    reader = RecordingReader(tmp_path / "r")
    assert list(reader) == events
    assert reader.count == 199
    assert reader.read_bytes <= reader.total_bytes


def test_partitions_are_merged_too(tmp_path):
    record(tmp_path / "one", [host(n) for n in (1, 4, 5)])
    record(tmp_path / "two", [host(n) for n in (2, 3, 6)], partition=1)
    topic = HostEvent.topic
    (tmp_path / "two" / topic / "1").rename(tmp_path / "one" / topic / "1")
    assert [e.published_ns for e in RecordingReader(tmp_path / "one")] == [1, 2, 3, 4, 5, 6]


def test_the_order_inside_a_file_is_kept_when_a_clock_steps_back(tmp_path):
    order = [5, 3, 9, 1]
    record(tmp_path / "r", [host(n) for n in order])
    assert [e.published_ns for e in RecordingReader(tmp_path / "r")] == order


def test_any_avro_tool_reads_it(tmp_path):
    record(tmp_path / "r", [host(1, cpu_seconds=0.25)])
    with next((tmp_path / "r").glob("*/*/*.avro")).open("rb") as stream:
        assert [r["cpu_seconds"] for r in reader(stream)] == [0.25]


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        RecordingWriter(tmp_path)
    file = tmp_path / "note.txt"
    with pytest.raises(InputError, match="no folder"):
        RecordingWriter(file)


def test_a_second_of_writing_is_in_the_file_before_it_is_closed(tmp_path):
    now = [0.0]
    writer = RecordingWriter(tmp_path / "r", clock_seconds=lambda: now[0])
    for n in range(1, 31):
        now[0] = n * 0.1
        writer.write(host(n))
    # as a killed writer leaves it: nothing closed
    found = [e.published_ns for e in RecordingReader(tmp_path / "r")]
    writer.close()
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= 20


def test_a_file_cut_off_is_read_as_far_as_it_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "BLOCK_BYTES", 200)
    record(tmp_path / "r", [host(n) for n in range(1, 101)])
    path = next((tmp_path / "r").glob("*/*/*.avro"))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.warns(RecordingWarning, match=r"\.avro: byte \d+: cut off") as caught:
        found = [e.published_ns for e in RecordingReader(tmp_path / "r")]
    assert 0 < len(found) < 100
    assert found == list(range(1, len(found) + 1))
    assert len(caught) == 1


def test_every_cut_gives_a_prefix_or_an_error_in_one_line(tmp_path):
    record(tmp_path / "r", [host(n) for n in range(1, 4)])
    path = next((tmp_path / "r").glob("*/*/*.avro"))
    whole = path.read_bytes()
    for size in range(0, len(whole), 37):
        path.write_bytes(whole[:size])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecordingWarning)
            try:
                found = [e.published_ns for e in RecordingReader(tmp_path / "r")]
            except InputError as error:
                told = str(error)
                found = []
        assert found or ("\n" not in told and len(told) < 500)
        assert found == list(range(1, len(found) + 1))


def test_garbage_is_told_with_its_file(tmp_path):
    record(tmp_path / "r", [host(1)])
    path = next((tmp_path / "r").glob("*/*/*.avro"))
    path.write_bytes(b"time_s,rank\n" * 50)
    with pytest.raises(InputError, match=r"00000000\.avro: is no Avro"):
        list(RecordingReader(tmp_path / "r"))


def test_a_foreign_avro_file_is_told_with_its_file(tmp_path):
    record(tmp_path / "r", [sample(1)])
    ours = next((tmp_path / "r").glob("*/*/*.avro"))
    other = tmp_path / "r" / HostEvent.topic / "0"
    other.mkdir(parents=True)
    ours.rename(other / "x.avro")
    with pytest.raises(InputError, match=r"x\.avro: no eacgm\.host\.v1 recording"):
        list(RecordingReader(tmp_path / "r"))


def test_an_unknown_topic_is_told(tmp_path):
    record(tmp_path / "r", [sample(1)])
    (tmp_path / "r" / SamplesEvent.topic).rename(tmp_path / "r" / "what")
    with pytest.raises(InputError, match="unknown topic 'what'"):
        list(RecordingReader(tmp_path / "r"))


def test_an_empty_recording_is_told(tmp_path):
    with pytest.raises(InputError, match="no recording here"):
        RecordingReader(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        RecordingReader(tmp_path / "nowhere")
    path = tmp_path / HostEvent.topic / "0" / "a.avro"
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.warns(RecordingWarning), pytest.raises(InputError, match="holds no event"):
        list(RecordingReader(tmp_path))


def test_a_record_that_is_no_event_is_left_out_and_told(tmp_path):
    backwards = host(2)
    backwards.start_ns = backwards.end_ns + 1
    record(tmp_path / "r", [host(1), backwards, host(3)])
    with pytest.warns(RecordingWarning, match=r"1 record is no event .* record 2: interval ends"):
        assert [e.published_ns for e in RecordingReader(tmp_path / "r")] == [1, 3]


@contextlib.contextmanager
def somebody_else():
    """Look at files as a user who may not read everything."""
    before = os.geteuid()
    os.seteuid(before or 65534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize("closed", ["", HostEvent.topic, f"{HostEvent.topic}/0"])
def test_a_folder_that_may_not_be_looked_into_is_told_and_not_left_out(closed):
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        folder = Path(made) / "r"
        record(folder, [host(1), sample(2)])
        (folder / closed).chmod(0)
        with somebody_else(), pytest.raises(InputError, match="Permission denied") as caught:
            list(RecordingReader(folder))
        (folder / closed).chmod(0o755)
        assert str(folder / closed) in str(caught.value)


def test_a_pipe_in_a_recording_is_refused_and_not_waited_for(tmp_path):
    record(tmp_path / "r", [host(1)])
    os.mkfifo(tmp_path / "r" / HostEvent.topic / "0" / "1.avro")
    with pytest.raises(InputError, match="no ordinary file"):
        RecordingReader(tmp_path / "r")
