"""What waits for a broker comes out in order, whatever happens: nothing twice, nothing lost that is not counted."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eacgm.errors import ConfigError
from eacgm.kafka.backlog import Letter, MemoryBacklog
from eacgm.kafka.spool import LEAST_SEGMENT_BYTES, DiskBacklog

MANY = 10**7


def letter(number, size=10):
    return Letter("eacgm.host.v1", b"job", str(number).encode().rjust(size, b"0"))


def number_of(letter):
    return int(letter.value)


def drain(backlog, most_bytes=MANY):
    out = []
    while some := backlog.head(most_bytes):
        out += map(number_of, some)
        backlog.remove_until(backlog.first + len(some))
    return out


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 40)),
        st.tuples(st.just("send"), st.integers(1, 5000)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=25,
)


def check(backlog, plan, restart):
    put, arrived = 0, []
    for what, count in plan:
        if what == "append":
            for _ in range(count):
                backlog.append(letter(put, 300))
                put += 1
        elif what == "send":
            some = backlog.head(count)
            arrived += map(number_of, some)
            backlog.remove_until(backlog.first + len(some))
        else:
            backlog = restart(backlog)
    assert len(backlog) + len(arrived) + backlog.dropped == put
    arrived += drain(backlog)
    assert arrived == sorted(set(arrived))
    assert put - len(arrived) == backlog.dropped
    assert arrived[-1:] == ([put - 1] if put else [])  # the newest is never what makes room
    assert len(backlog) == 0


@given(steps, st.integers(1000, 20_000))
@settings(deadline=None)
def test_in_memory(plan, most_bytes):
    check(MemoryBacklog(most_bytes), plan, lambda backlog: backlog)


@given(steps, st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_on_disk_also_through_restarts(plan, segments):
    with tempfile.TemporaryDirectory() as folder:
        most_bytes = segments * LEAST_SEGMENT_BYTES

        def restart(backlog):
            dropped = backlog.dropped
            backlog.close()
            backlogs.append(DiskBacklog(Path(folder), most_bytes))
            backlogs[-1].dropped = dropped
            return backlogs[-1]

        backlogs = [DiskBacklog(Path(folder), most_bytes)]
        try:
            check(backlogs[0], plan, restart)
        finally:
            for backlog in backlogs:
                backlog.close()


@given(st.integers(1, 30), st.data())
@settings(max_examples=60, deadline=None)
def test_a_process_that_dies_while_it_writes_leaves_all_whole_letters(count, data):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        backlog = DiskBacklog(folder, MANY)
        for number in range(count):
            backlog.append(letter(number, 50))
        backlog.close()
        (segment,) = folder.glob("*.spool")
        size = segment.stat().st_size
        kept = data.draw(st.integers(0, size))
        os.truncate(segment, kept)
        whole = kept // (size // count)
        again = DiskBacklog(folder, MANY)
        assert len(again) == whole
        assert again.damaged == (kept % (size // count) != 0)
        again.append(letter(count))
        assert drain(again) == [*range(whole), count]
        again.close()


@given(st.binary(max_size=200), st.integers(0, 400))
@settings(max_examples=100, deadline=None)
def test_foreign_bytes_are_never_an_error(rubbish, place):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        backlog = DiskBacklog(folder, MANY)
        for number in range(5):
            backlog.append(letter(number))
        backlog.close()
        (segment,) = folder.glob("*.spool")
        with segment.open("r+b") as file:
            file.seek(place)
            file.write(rubbish)
        (folder / "position").write_bytes(rubbish)
        (folder / "notes.spool").write_bytes(rubbish)
        again = DiskBacklog(folder, MANY)
        again.append(letter(7))
        found = drain(again)
        assert found[-1] == 7
        assert found[:-1] == sorted(set(found[:-1]))
        again.close()


def test_what_has_arrived_is_not_sent_again_after_a_restart(tmp_path):
    backlog = DiskBacklog(tmp_path, MANY)
    for number in range(10):
        backlog.append(letter(number))
    backlog.remove_until(backlog.first + 4)
    backlog.close()
    again = DiskBacklog(tmp_path, MANY)
    assert drain(again) == [4, 5, 6, 7, 8, 9]
    again.close()
    assert list(tmp_path.glob("*.spool")) == []


def test_a_folder_is_one_agents(tmp_path):
    first = DiskBacklog(tmp_path, MANY)
    with pytest.raises(ConfigError, match="used by another agent"):
        DiskBacklog(tmp_path, MANY)
    first.close()
    DiskBacklog(tmp_path, MANY).close()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        DiskBacklog(tmp_path / "file" / "spool", MANY)


def test_a_full_disk_drops_and_says_so(tmp_path):
    backlog = DiskBacklog(tmp_path, MANY)
    backlog.append(letter(0))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, backlog._open.fileno())
    os.close(full)
    backlog.append(letter(1))
    assert backlog.dropped == 1
    assert "No space left" in backlog.complaint
    backlog.append(letter(2))
    assert backlog.complaint == ""
    assert drain(backlog) == [0, 2]
    backlog.close()


def test_segments_that_somebody_took_away_are_passed_over(tmp_path):
    backlog = DiskBacklog(tmp_path, 10 * LEAST_SEGMENT_BYTES)
    for number in range(1000):
        backlog.append(letter(number, 300))
    backlog.close()
    _, second, *_ = sorted(tmp_path.glob("*.spool"))
    second.unlink()
    again = DiskBacklog(tmp_path, 10 * LEAST_SEGMENT_BYTES)
    before = int(second.stem)
    found = drain(again)
    assert found[:before] == list(range(before))
    assert found[-1] == 999
    assert len(again) == 0
    again.close()
