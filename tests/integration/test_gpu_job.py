"""Two ranks that call stand-ins for CUDA and NCCL, as the agent tells them: what travels, encoded and decoded."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest
from doubles import build

from eacgm.events import CallsEvent, CollectivesEvent, ProcessEvent
from eacgm.producers.agent import Agent
from eacgm.schemas import decode, encode

pytestmark = pytest.mark.ebpf

_PROGRAM = """
import ctypes, os, sys
cuda, nccl = (ctypes.CDLL(path) for path in sys.argv[1:3])
Id = type('Id', (ctypes.Structure,), {'_fields_': [('words', ctypes.c_ubyte * 128)]})
nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, Id, ctypes.c_int]
sys.stdin.readline()
unique, group = Id((ctypes.c_ubyte * 128)(*bytes.fromhex(sys.argv[3]))), ctypes.c_void_p()
nccl.ncclCommInitRank(group, 2, unique, int(os.environ['RANK']))
for _ in range(23):
    cuda.cudaMalloc(ctypes.byref(ctypes.c_ulong()), ctypes.c_size_t(1000))
    cuda.cudaMemcpyAsync(None, None, ctypes.c_size_t(64), 1, None)
    nccl.ncclAllReduce(None, None, ctypes.c_size_t(10), 7, 0, group, None)
ctypes.c_int.in_dll(ctypes.CDLL('libcuda.so.1'), 'result').value = 700
cuda.cudaStreamSynchronize(None)
ctypes.c_int.in_dll(nccl, 'hanging').value = int(os.environ['RANK'] == '1')
nccl.ncclAllReduce(None, None, ctypes.c_size_t(10), 7, 0, group, None)
sys.stdin.readline()
"""


def until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it has not come"
        time.sleep(0.05)


def test_both_ranks_tell_one_communicator_their_memory_copies_and_errors_and_who_hangs(tmp_path):
    libraries = [
        build("cudart", tmp_path / "libcudart.so.12", build("cuda", tmp_path / "libcuda.so.1")),
        build("nccl", tmp_path / "libnccl.so.2"),
    ]
    job, unique, events, stop = f"gpu-{os.getpid()}", os.urandom(128).hex(), [], threading.Event()
    agent = Agent(lambda event: events.append(decode(encode(event))), interval_ms=500, only_jobs=[job])
    thread = threading.Thread(target=agent.run, args=(stop,))
    thread.start()
    environ = {"TORCHELASTIC_RUN_ID": job, "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *map(str, libraries), unique],
            env=environ | {"RANK": str(rank)},
            stdin=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]

    def told(kind, rank):
        return [event for event in list(events) if isinstance(event, kind) and event.rank == rank]

    def attached(rank):
        layers = {layer.layer: layer.status for event in told(ProcessEvent, rank) for layer in event.layers}
        return (layers.get("cuda"), layers.get("collective")) == ("attached", "attached")

    try:
        until(lambda: attached(0) and attached(1))
        for rank in ranks:
            rank.stdin.write("go\n")
            rank.stdin.flush()
        until(lambda: any(event.open_operation for event in told(CollectivesEvent, 1)))
        until(lambda: sum(len(event.operation) for event in told(CollectivesEvent, 0)) == 24)
        seen = [[name for event in told(CollectivesEvent, rank) for name in event.communicator] for rank in range(2)]
        assert (len(seen[0]), len(seen[1])) == (24, 23)
        assert len({*seen[0], *seen[1]}) == 1
        hung = next(event for event in told(CollectivesEvent, 1) if event.open_operation)
        assert (hung.open_communicator, hung.open_call_sequence.tolist()) == (seen[1][:1], [23])
        for rank in range(2):
            calls = told(CallsEvent, rank)
            assert calls[-1].cuda_allocated_bytes == 23_000
            bytes_of, codes = {}, {}
            for event in calls:
                for function, moved in zip(event.function, event.payload_bytes.tolist(), strict=True):
                    bytes_of[function] = bytes_of.get(function, 0) + moved
                for row, code, count in zip(event.error_row, event.error_code, event.error_count, strict=True):
                    codes[event.function[row], int(code)] = int(count)
            assert bytes_of["cudaMemcpyHtoDAsync"] == 23 * 64
            assert codes == {("cudaStreamSynchronize", 700): 1}
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
        stop.set()
        thread.join(30)
