"""What /proc tells of a process, on checked-in nodes and on this machine."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from eacgm.errors import InputError
from eacgm.producers.procfs import (
    PAGE_BYTES,
    TICKS_PER_SECOND,
    changes,
    delay_accounting,
    grown,
    parse_stat,
    read_file,
    read_process,
    read_stat,
)

FIXTURES = Path(__file__).parent / "fixtures"
V1, V2 = str(FIXTURES / "node_v1"), str(FIXTURES / "node_v2")


def reading(root, pid, **options):
    stat = read_stat(root, pid)
    assert stat is not None
    return read_process(root, stat, **{"delays": True, "scheduling": True} | options)


def test_every_field_of_a_process_is_read_in_its_unit():
    found = reading(V2, 110)
    assert found.cpu_seconds == 3500 / TICKS_PER_SECOND
    assert found.rss_bytes == 250_000 * PAGE_BYTES
    assert (found.major_faults, found.threads, found.stopped) == (12, 2, False)
    assert found.io_wait_seconds == 75 / TICKS_PER_SECOND
    assert (found.io_read_bytes, found.io_written_bytes) == (4_096_000, 8192)
    assert found.run_queue_wait_seconds == {110: 2.0, 1110: 0.5}


def test_what_the_kernel_does_not_tell_is_none():
    found = reading(V1, 202, delays=delay_accounting(V1), scheduling=False)
    assert found.stopped is True
    assert (found.io_wait_seconds, found.io_read_bytes, found.run_queue_wait_seconds) == (None, None, None)
    assert reading(V1, 204).run_queue_wait_seconds is None


def test_a_command_may_hold_brackets_and_spaces():
    stat = read_stat(V2, 130)
    assert stat is not None
    assert (stat.command, stat.parent) == ("nginx: worker (1) pr", 90)


@pytest.mark.parametrize("text", [b"", b"110 (python) S 1", b"nonsense", b"1 (a) S " + b"x " * 49])
def test_a_line_that_is_no_status_is_refused(text):
    with pytest.raises(InputError, match=r"/proc/PID/stat: .* (expected|no number)"):
        parse_stat(text)


def test_a_process_that_is_gone_has_no_status():
    assert read_stat(V2, 999) is None


def test_a_process_that_vanishes_between_two_files_keeps_what_was_read():
    stat = read_stat(V2, 110)
    assert stat is not None
    found = read_process(V2, replace(stat, pid=999), delays=True, scheduling=True)
    assert found.cpu_seconds == 3500 / TICKS_PER_SECOND
    assert (found.io_read_bytes, found.run_queue_wait_seconds) == (None, None)


def test_the_first_interval_tells_no_change():
    assert set(changes(reading(V2, 110), None).values()) == {None}


def test_changes_are_what_the_counters_grew_by():
    before = reading(V2, 110)
    now = replace(before, cpu_seconds=before.cpu_seconds + 0.5, io_read_bytes=5_000_000.0, major_faults=15.0)
    found = changes(now, before)
    assert found["cpu_seconds"] == pytest.approx(0.5)
    assert (found["io_read_bytes"], found["major_faults"], found["io_written_bytes"]) == (904_000, 3, 0)


def test_waits_are_those_of_threads_that_lived_and_of_new_ones():
    before = replace(reading(V2, 110), run_queue_wait_seconds={1: 2.0, 2: 9.0})
    now = replace(before, run_queue_wait_seconds={1: 2.25, 3: 0.5})
    assert changes(now, before)["run_queue_wait_seconds"] == pytest.approx(0.75)


def test_another_process_with_the_same_pid_begins_anew():
    before = reading(V2, 110)
    now = replace(before, stat=replace(before.stat, start_ticks=9999))
    assert set(changes(now, before).values()) == {None}


def test_a_counter_that_was_reset_is_unknown_not_zero():
    assert grown(1.0, 2.0) is None
    assert grown(2.0, 2.0) == 0.0


def test_a_file_longer_than_a_page_is_read_to_its_end():
    text = read_file(f"{V2}/proc/self/mountinfo")
    assert text is not None
    assert text.count(b"\n") == 3
    assert read_file(f"{V2}/proc") is None


def test_this_process_for_real():
    before = reading("", os.getpid(), delays=delay_accounting(""))
    end = time.process_time() + 0.15
    while time.process_time() < end:
        pass
    found = changes(reading("", os.getpid(), delays=delay_accounting("")), before)
    assert found["cpu_seconds"] is not None
    assert 0.1 <= found["cpu_seconds"] <= 0.5
    assert found["run_queue_wait_seconds"] is None or found["run_queue_wait_seconds"] >= 0
