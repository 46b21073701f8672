"""Tracing that is not to be had never stops the agent."""

import codecs
import os
import pickle

import numpy as np

from eacgm.producers.observation import CallColumns, CollectiveColumns, HostColumns, Observation, PeerColumns
from eacgm.producers.probe import LAYERS
from eacgm.producers.tracing import Tracing, trains


def ints(*values):
    return np.array(values, dtype=np.int64)


def observation(function="backward", count=0, open_count=0, collectives=0):
    calls = CallColumns(layer=["x"], function=[function], count=ints(count), open_count=ints(open_count))
    columns = CollectiveColumns(call_sequence=np.arange(collectives))
    return Observation(
        pid=1, start_ns=0, end_ns=1, lost=0, calls=calls, collectives=columns, host=HostColumns(), peers=PeerColumns()
    )


def test_without_a_tracer_every_layer_has_failed_for_the_reason():
    tracing = Tracing.without("no reason")
    assert tracing.failure == "no reason"
    for layers in (tracing.watch(os.getpid()), tracing.refresh(os.getpid())):
        assert [layer.layer for layer in layers] == list(LAYERS)
        assert {(layer.status, layer.reason) for layer in layers} == {("failed", "no reason")}
    seen = tracing.collect(1)
    assert (seen.observations, seen.exits, seen.lost, seen.unattributed_retransmits) == ({}, {}, 0, None)
    tracing.unwatch(os.getpid())
    tracing.close()
    assert tracing.failure == "no reason"


def test_without_privileges_the_failure_names_what_is_missing():
    # the child may not read the interpreter's own files any more
    codecs.lookup("ascii")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            os.write(writer, pickle.dumps(Tracing.begin().failure))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        failure = pickle.loads(pipe.read())
    os.waitpid(child, 0)
    assert "CAP_BPF" in failure
    assert "\n" not in failure


def test_a_process_trains_once_it_runs_a_backward_or_a_collective():
    assert trains(observation(count=1))
    assert trains(observation(open_count=1))
    assert trains(observation(collectives=2))
    assert not trains(observation())
    assert not trains(observation("gc", count=5))
