"""Columns of the tracer become columns of events."""

from pathlib import Path

import numpy as np

from eacgm.producers.messages import Interval, calls_event
from eacgm.producers.observation import CallColumns, CollectiveColumns, HostColumns, Observation, PeerColumns
from eacgm.producers.processes import ProcessTable


def ints(*values):
    return np.array(values, dtype=np.int64)


def event_of(calls: CallColumns):
    table = ProcessTable(str(Path(__file__).parent / "fixtures" / "node_v2"))
    process = table.scan().found[0]
    observation = Observation(
        pid=process.pid,
        start_ns=0,
        end_ns=10,
        lost=7,
        calls=calls,
        collectives=CollectiveColumns(),
        host=HostColumns(),
        peers=PeerColumns(),
    )
    return calls_event(process, observation, Interval(0, 10, "n", None))


def test_silent_rows_are_left_out_and_open_ones_kept():
    event = event_of(
        CallColumns(
            layer=["a", "a", "b", "b"],
            function=["silent", "open", "done", "silent2"],
            count=ints(0, 0, 3, 0),
            errors=ints(0, 0, 1, 0),
            payload_bytes=ints(0, 0, 30, 0),
            total_ns=ints(0, 0, 300, 0),
            max_ns=ints(0, 0, 200, 0),
            open_count=ints(0, 1, 0, 0),
            open_age_ns=ints(0, 55, 0, 0),
            histogram_row=ints(2, 2),
            histogram_bucket=ints(5, 7),
            histogram_count=ints(2, 1),
        )
    )
    assert (event.layer, event.function) == (["a", "b"], ["open", "done"])
    assert (event.count.tolist(), event.open_age_ns.tolist()) == ([0, 3], [55, 0])
    assert (event.histogram_row.tolist(), event.histogram_count.tolist()) == ([1, 1], [2, 1])
    assert event.lost == 7


def test_errors_keep_their_row_even_if_its_call_was_told_before():
    silent = {
        name: ints(0, 0, 0) for name in ("errors", "payload_bytes", "total_ns", "max_ns", "open_count", "open_age_ns")
    }
    event = event_of(
        CallColumns(
            layer=["a", "a", "a"],
            function=["silent", "done", "failed"],
            count=ints(0, 2, 0),
            error_row=ints(2, 1),
            error_code=ints(700, 2),
            error_count=ints(1, 2),
            **silent,
        )
    )
    assert event.function == ["done", "failed"]
    assert (event.error_row.tolist(), event.error_code.tolist(), event.error_count.tolist()) == (
        [1, 0],
        [700, 2],
        [1, 2],
    )


def test_nothing_called_is_an_event_without_rows():
    event = event_of(CallColumns())
    assert event.layer == []
    assert event.count.size == 0
