"""The shipped table on real interpreters and on a real torch: known numbers of collections, backwards, collectives."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from eacgm.producers.tracer import Tracer

pytestmark = pytest.mark.ebpf

#: Debian's interpreter is stripped (static markers); the tests' own may have its symbols
_INTERPRETERS = sorted({sys.executable, *filter(None, [shutil.which("/usr/bin/python3")])})


@pytest.fixture(scope="module")
def default_tracer() -> Iterator[Tracer]:
    with Tracer() as tracer:
        yield tracer


def counts(observation):
    calls = observation.calls
    return dict(zip(calls.function, calls.count.tolist(), strict=True))


@pytest.mark.parametrize("interpreter", _INTERPRETERS)
def test_23_garbage_collections_give_23(default_tracer, driver, interpreter):
    one = driver(library="", interpreter=interpreter)
    coverage = {layer.layer: layer for layer in default_tracer.watch(one.pid)}
    if coverage["python"].status == "absent":
        pytest.skip(f"{interpreter} has neither symbols nor static markers")
    default_tracer.collect()
    one.run("for i in range(23): gc.collect()")
    observation = default_tracer.collect().observations[one.pid]
    assert coverage["python"].status == "attached"
    assert coverage["cuda"].status == "absent"
    assert "not loaded" in coverage["cuda"].reason
    assert counts(observation) == {"gc": 23}
    assert observation.calls.total_ns[0] > 23 * 1000
    default_tracer.unwatch(one.pid)


_TRAINING = """
import os, sys, time, torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{sys.argv[2]}', rank=int(sys.argv[1]), world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
x = torch.ones(4, 64)
for i in range(3):  # DistributedDataParallel settles its buckets in the first two steps
    model(x).sum().backward()
print('ready', flush=True)
sys.stdin.readline()
for i in range(23):
    model(x).sum().backward()
for i in range(5):
    dist.all_reduce(torch.ones(1))
dist.broadcast(torch.ones(1), 0)
dist.barrier()
print('done', flush=True)
sys.stdin.readline()
"""


@pytest.mark.torch
def test_a_real_training_job_gives_its_backwards_and_collectives(default_tracer, torch_python):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [torch_python, "-c", _TRAINING, str(rank), port], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        for rank in ranks:
            assert rank.stdout.readline() == "ready\n"
            coverage = {layer.layer: layer for layer in default_tracer.watch(rank.pid)}
            assert (coverage["pytorch"].status, coverage["collective"].status) == ("attached", "attached")
        default_tracer.collect()
        for rank in ranks:
            rank.stdin.write("go\n")
            rank.stdin.flush()
        for rank in ranks:
            assert rank.stdout.readline() == "done\n"
        time.sleep(0.3)  # the worker thread tells its waiter before it returns
        observations = default_tracer.collect().observations
        for rank in ranks:
            seen = observations[rank.pid]
            numbers = counts(seen)
            assert numbers["backward"] == 23
            assert numbers["ddp_finalize_backward"] == 23
            collectives = seen.collectives
            assert set(collectives.communicator) == {"gloo/0"}
            assert collectives.call_sequence.tolist() == list(range(len(collectives.operation)))
            assert collectives.operation.count("allreduce") == 23 + 5  # one bucket a step
            assert collectives.operation.count("broadcast") == 1
            assert collectives.operation.count("barrier") == 1
            assert numbers["allreduce"] == 28
            assert seen.host.net_sent_bytes > 23 * 64 * 65 * 4 / 2
            assert seen.lost == 0
        # numbered alike on both ranks: the same operation under the same number
        first, second = (observations[rank.pid].collectives.operation for rank in ranks)
        assert first == second
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
            default_tracer.unwatch(rank.pid)
