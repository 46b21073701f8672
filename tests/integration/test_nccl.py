"""NCCL's communicators and collectives, on a stand-in under NCCL's own name whose every call is known."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

import pytest
from doubles import build

from eacgm.producers.tracer import Tracer

pytestmark = pytest.mark.ebpf

_BEGIN = (
    "P, Z = ctypes.c_void_p, ctypes.c_size_t",
    "Id = type('Id', (ctypes.Structure,), {'_fields_': [('words', ctypes.c_ubyte * 128)]})",
    "unique = lambda text: Id((ctypes.c_ubyte * 128)(*bytes.fromhex(text)))",
    "knob = lambda name: ctypes.c_int.in_dll(lib, name)",
    "[setattr(getattr(lib, n), 'argtypes', [ctypes.POINTER(P), ctypes.c_int, Id, ctypes.c_int])"
    " for n in ('ncclCommInitRank', 'ncclCommInitRankConfig')]",
    "init = lambda text, rank, size, n='ncclCommInitRank': (c := P(), getattr(lib, n)(c, size, unique(text), rank))[0]",
    "split = lambda c, colour: (n := P(), lib.ncclCommSplit(c, colour, 0, ctypes.byref(n), None))[0]",
    "allreduce = lambda c, n=100: lib.ncclAllReduce(None, None, Z(n), 7, 0, c, None)",
)


@pytest.fixture(scope="session")
def double(tmp_path_factory):
    return build("nccl", tmp_path_factory.mktemp("nccl") / "libnccl.so.2")


@pytest.fixture(scope="module")
def default_tracer() -> Iterator[Tracer]:
    with Tracer() as tracer:
        yield tracer


@pytest.fixture
def ranks(default_tracer, driver, double):
    """Two watched processes with the library loaded."""
    both = [driver(library=double) for _ in range(2)]
    for one in both:
        for line in _BEGIN:
            one.run(line)
        default_tracer.watch(one.pid)
    default_tracer.collect()
    yield both
    for one in both:
        default_tracer.unwatch(one.pid)


def collectives(tracer, ranks):
    observations = tracer.collect().observations
    return [observations[one.pid].collectives for one in ranks]


def counts(observation):
    calls = observation.calls
    return {n: (int(c), int(e)) for n, c, e in zip(calls.function, calls.count, calls.errors, strict=True)}


def new_id():
    return os.urandom(128).hex()


@pytest.mark.parametrize("function", ["ncclCommInitRank", "ncclCommInitRankConfig"])
def test_ranks_in_different_processes_agree_on_a_communicator_s_name(default_tracer, ranks, function):
    first = new_id()
    second = first[:-2] + f"{int(first[-2:], 16) ^ 1:02x}"  # the last bit of 1024 tells them apart
    for rank, one in enumerate(ranks):
        one.run(f"other = [init('{new_id()}', 0, 1) for _ in range({rank} * 100)]")  # other addresses on each rank
        one.run(f"a = init('{first}', {rank}, 2, '{function}'); b = init('{second}', {rank}, 2, '{function}')")
        one.run("[allreduce(a) for _ in range(23)]; allreduce(b)")
    zero, one = collectives(default_tracer, ranks)
    assert zero.communicator == one.communicator
    assert len(set(zero.communicator[:23])) == 1
    assert zero.communicator[23] != zero.communicator[0]
    assert all(re.fullmatch(r"nccl/[0-9a-f]{16}", name) for name in zero.communicator)
    assert zero.call_sequence.tolist() == one.call_sequence.tolist() == [*range(23), 0]
    assert zero.payload_bytes.tolist() == [400] * 24


def test_ids_given_as_a_list_name_a_communicator_too(default_tracer, ranks):
    name = new_id()
    for rank, one in enumerate(ranks):
        one.run(f"ids = (Id * 2)(unique('{name}'), unique('{new_id()}')); c = P()")
        one.run(f"lib.ncclCommInitRankScalable(ctypes.byref(c), 2, {rank}, 2, ids, None); allreduce(c)")
    zero, one = collectives(default_tracer, ranks)
    assert zero.communicator == one.communicator
    assert re.fullmatch(r"nccl/[0-9a-f]{16}", zero.communicator[0])


def test_what_is_split_or_shrunk_from_a_communicator_inherits_a_name_that_its_ranks_agree_on(default_tracer, ranks):
    name = new_id()
    for rank, one in enumerate(ranks):
        one.run(f"w = init('{name}', {rank}, 2); x = split(w, 5); y = split(w, 5); z = split(w, {rank}); s = P()")
        one.run("lib.ncclCommShrink(w, None, 1, ctypes.byref(s), None, 0)")
        one.run("[allreduce(c) for c in (w, x, y, z, s)]")
    zero, one = collectives(default_tracer, ranks)
    assert zero.communicator[:3] == one.communicator[:3]  # one colour
    assert zero.communicator[3] != one.communicator[3]  # each its own
    assert zero.communicator[4] == one.communicator[4]
    assert len({*zero.communicator, *one.communicator}) == 6


def test_a_communicator_that_follows_at_the_same_address_is_another_one_and_begins_at_0(default_tracer, ranks):
    one = ranks[0]
    one.run(f"a = init('{new_id()}', 0, 1); allreduce(a); allreduce(a); lib.ncclCommDestroy(a)")
    same = one.run(f"b = init('{new_id()}', 0, 1); allreduce(b); print(a.value == b.value)")
    seen = collectives(default_tracer, ranks)[0]
    assert same == "True"
    assert seen.call_sequence.tolist() == [0, 1, 0]
    assert seen.communicator[0] == seen.communicator[1] != seen.communicator[2]


def test_communicators_older_than_the_watching_are_numbered(default_tracer, driver, double):
    one = driver(library=double)
    for line in _BEGIN:
        one.run(line)
    one.run(f"a = init('{new_id()}', 0, 1); b = init('{new_id()}', 0, 1)")
    default_tracer.watch(one.pid)
    default_tracer.collect()
    one.run("allreduce(b); allreduce(a); allreduce(b); c = split(a, 1); allreduce(c)")
    seen = default_tracer.collect().observations[one.pid].collectives
    assert seen.communicator == ["nccl/0", "nccl/1", "nccl/0", "nccl/2"]
    assert seen.call_sequence.tolist() == [0, 0, 1, 0]
    default_tracer.unwatch(one.pid)


def test_a_communicator_whose_making_failed_leaves_nothing(default_tracer, ranks):
    one = ranks[0]
    one.run(f"knob('result').value = 5; a = init('{new_id()}', 0, 1); knob('result').value = 0; print(a.value)")
    observation = default_tracer.collect().observations[one.pid]
    assert counts(observation)["ncclCommInitRank"] == (1, 1)


def test_work_that_goes_on_is_no_error_and_an_error_behind_the_scenes_is_one(default_tracer, ranks):
    one = ranks[0]
    one.run(f"knob('result').value = 7; a = init('{new_id()}', 0, 1); allreduce(a); knob('result').value = 0")
    one.run("e = ctypes.c_int(); asked = lambda: lib.ncclCommGetAsyncError(a, ctypes.byref(e))")
    one.run("inside = ctypes.cast(a, ctypes.POINTER(ctypes.c_int)); [asked() for _ in range(5)]")
    one.run("inside[2] = 7; [asked() for _ in range(3)]; inside[2] = 6; [asked() for _ in range(2)]")
    observation = default_tracer.collect().observations[one.pid]
    assert counts(observation)["ncclCommInitRank"] == (1, 0)
    assert counts(observation)["allreduce"] == (1, 0)
    assert counts(observation)["ncclCommGetAsyncError"] == (10, 2)
    assert observation.collectives.return_code.tolist() == [0]
    assert observation.collectives.communicator[0].startswith("nccl/")


def test_a_hung_collective_is_told_with_its_communicator_and_number_while_it_hangs(default_tracer, ranks):
    name = new_id()
    for rank, one in enumerate(ranks):
        one.run(f"a = init('{name}', {rank}, 2); allreduce(a); allreduce(a)")
    finished = collectives(default_tracer, ranks)[1]
    one = ranks[1]
    one.run("knob('hanging').value = 1; t = threading.Thread(target=allreduce, args=(a,)); t.start()")
    time.sleep(0.3)
    hung = collectives(default_tracer, ranks)[1]
    assert (hung.open_operation, hung.open_communicator) == (["allreduce"], finished.communicator[:1])
    assert hung.open_call_sequence.tolist() == [2]
    assert len(hung.operation) == 0
    one.run("knob('hanging').value = 0; t.join()")
    done = collectives(default_tracer, ranks)[1]
    assert (done.call_sequence.tolist(), done.open_operation) == ([2], [])
    assert done.call_end_ns[0] - done.call_start_ns[0] >= 300_000_000


def test_calls_of_a_group_and_between_two_ranks_are_counted(default_tracer, ranks):
    one = ranks[0]
    one.run(f"a = init('{new_id()}', 0, 2); knob('delay_us').value = 2000; lib.ncclGroupStart()")
    one.run("[lib.ncclSend(None, Z(10), 7, 1, a, None) for _ in range(7)]")
    one.run("[lib.ncclRecv(None, Z(10), 9, 1, a, None) for _ in range(3)]; lib.ncclGroupEnd()")
    observation = default_tracer.collect().observations[one.pid]
    seen = counts(observation)
    assert [seen[n] for n in ("send", "recv", "ncclGroupStart", "ncclGroupEnd")] == [(7, 0), (3, 0), (1, 0), (1, 0)]
    calls = observation.calls
    moved = dict(zip(calls.function, calls.payload_bytes.tolist(), strict=True))
    assert (moved["send"], moved["recv"]) == (7 * 10 * 4, 3 * 10 * 2)
    assert calls.total_ns[calls.function.index("ncclGroupEnd")] >= 2_000_000
    assert observation.collectives.operation == []


def test_each_collective_is_counted_once_under_whatever_name_it_was_called(default_tracer, ranks):
    one = ranks[0]
    one.run(f"a = init('{new_id()}', 0, 2); args = (None, None, Z(8), 4, 0, a, None)")
    one.run("[lib.ncclBcast(None, Z(8), 4, 0, a, None) for _ in range(5)]; lib.pncclAllReduce(*args)")
    one.run("[f(*args) for f in (lib.ncclAllReduce, lib.ncclReduceScatter, lib.ncclGather, lib.ncclScatter)]")
    one.run("lib.ncclReduce(None, None, Z(8), 4, 0, 0, a, None)")
    one.run("[f(None, None, Z(8), 4, a, None) for f in (lib.ncclAllGather, lib.ncclAlltoAll)]")
    observation = default_tracer.collect().observations[one.pid]
    expected = {
        "broadcast": 5, "allreduce": 2, "reduce_scatter": 1, "gather": 1, "scatter": 1, "reduce": 1,
        "allgather": 1, "alltoall": 1, "ncclCommInitRank": 1,
    }  # fmt: skip
    assert counts(observation) == {name: (count, 0) for name, count in expected.items()}
    seen = observation.collectives
    assert len(seen.operation) == 13
    assert len(set(seen.communicator)) == 1
    assert seen.call_sequence.tolist() == list(range(13))
    assert set(seen.payload_bytes.tolist()) == {64}


def test_threads_with_communicators_of_their_own_are_kept_apart(default_tracer, ranks):
    one = ranks[0]
    ids = [new_id() for _ in range(4)]
    one.run("work = lambda text: (c := init(text, 0, 1), [allreduce(c) for _ in range(200)])")
    one.run(f"ts = [threading.Thread(target=work, args=(i,)) for i in {ids}]")
    one.run("[t.start() for t in ts]; [t.join() for t in ts]")
    seen = collectives(default_tracer, ranks)[0]
    per_name = {name: [] for name in seen.communicator}
    for name, number in zip(seen.communicator, seen.call_sequence.tolist(), strict=True):
        per_name[name].append(number)
    assert len(per_name) == 4
    assert all(numbers == list(range(200)) for numbers in per_name.values())
