"""Node readings."""

from dataclasses import replace
from pathlib import Path

import pytest

from eacgm.producers.node import node_changes, read_node
from eacgm.producers.procfs import TICKS_PER_SECOND

FIXTURES = Path(__file__).parent / "fixtures"


def test_a_node_that_tells_everything():
    found = read_node(str(FIXTURES / "node_v2"))
    assert (found.load, found.oom_kills, found.memory_available_bytes) == (6.25, 2, 201_326_592 * 1024)
    assert found.steal_seconds == 2500 / TICKS_PER_SECOND
    assert (found.cpu_stalled_seconds, found.io_stalled_seconds, found.memory_stalled_seconds) == (7.0, 1.5, 0.04)


def test_what_an_old_kernel_lacks_is_none():
    found = read_node(str(FIXTURES / "node_v1"))
    assert found.load == 0.5
    assert (found.memory_available_bytes, found.steal_seconds, found.oom_kills) == (None, None, None)
    assert (found.cpu_stalled_seconds, found.io_stalled_seconds, found.memory_stalled_seconds) == (None, None, None)


def test_no_proc_at_all_is_all_none(tmp_path):
    assert set(node_changes(read_node(str(tmp_path)), None, 1.0).values()) == {None}


def test_pressure_is_a_share_of_the_interval():
    before = read_node(str(FIXTURES / "node_v2"))
    now = replace(before, cpu_stalled_seconds=7.5, io_stalled_seconds=4.5, oom_kills=3.0, steal_seconds=26.0)
    found = node_changes(now, before, 2.0)
    assert found["cpu_pressure_ratio"] == pytest.approx(0.25)
    assert found["io_pressure_ratio"] == 1.0
    assert (found["oom_kills"], found["memory_pressure_ratio"]) == (1, 0)
    assert found["cpu_steal_seconds"] == pytest.approx(1.0)


def test_the_first_interval_has_gauges_only():
    found = node_changes(read_node(str(FIXTURES / "node_v2")), None, 1.0)
    assert {name for name, value in found.items() if value is not None} == {"load", "memory_available_bytes"}
