"""Probes that are taken off and come back, on the kernel; and PyTorch's operators by name."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from eacgm.producers.agent import Agent
from eacgm.producers.probe import Probe
from eacgm.producers.probes import TORCH_OPS
from eacgm.producers.tracer import Tracer

pytestmark = pytest.mark.ebpf

REASON = "pytorch probes taken off"


def calls_of(tracer, pid):
    calls = tracer.collect().observations[pid].calls
    return dict(zip(calls.function, calls.count.tolist(), strict=True))


def coverage_of(layers, name):
    return next(layer for layer in layers if layer.layer == name)


@pytest.mark.parametrize("multi", [True, False])
def test_a_group_goes_and_comes_back_and_the_others_stay(driver, probes, multi):
    one = driver()
    with Tracer(probes, uprobe_multi=multi) as tracer:
        whole = coverage_of(tracer.watch(one.pid), "pytorch")
        one.run("for _ in range(23): lib.work(0, 0, 0); lib.beat(0)")
        assert calls_of(tracer, one.pid)["work"] == 23
        tracer.shed("pytorch", REASON)
        shed = coverage_of(tracer.refresh(one.pid), "pytorch")
        assert (shed.status, shed.reason) == ("partial", REASON)
        assert 0 < shed.probes < whole.probes
        one.run("for _ in range(7): lib.work(0, 0, 0); lib.beat(0)")
        counts = calls_of(tracer, one.pid)
        assert (counts["work"], counts["beat"]) == (0, 7)
        tracer.restore("pytorch")
        assert coverage_of(tracer.refresh(one.pid), "pytorch") == whole
        one.run("for _ in range(5): lib.work(0, 0, 0)")
        assert calls_of(tracer, one.pid)["work"] == 5


def test_a_call_in_flight_when_its_probes_go_is_no_hang(driver, probes):
    one = driver()
    with Tracer(probes) as tracer:
        tracer.watch(one.pid)
        one.start("lib.work(700000, 0, 0)")
        time.sleep(0.2)
        assert tracer.collect().observations[one.pid].calls.open_count.sum() == 1
        tracer.shed("pytorch", REASON)
        assert tracer.collect().observations[one.pid].calls.open_count.sum() == 0
        one.wait()


def test_the_agent_sheds_what_costs_too_much_and_tells_it(driver):
    library = driver()  # only to have the library built
    path = library.run("print(lib._name)")
    library.close()
    loop = f"import ctypes\nlib = ctypes.CDLL({path!r})\nwhile True: lib.work(0, 0, 0)"
    environ = {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "shedding"}
    rank = subprocess.Popen([sys.executable, "-S", "-c", loop], env=environ)
    events = []
    table = (Probe("pytorch", r"libprobed.*\.so", "work(_alias)?", "work"),)
    agent = Agent(events.append, interval_ms=200, only_jobs=["shedding"], probes=table, cpu_percent=2)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            time.sleep(0.2)
            agent.collect()
            told = [layer for event in events for layer in getattr(event, "layers", ())]
            if any(layer.status == "shed" for layer in told):
                break
        shed = next(layer for layer in told if layer.status == "shed")
        assert shed.reason == "pytorch probes taken off, as watching cost more than 2% of a core"
        assert shed.probes == 0
    finally:
        agent.close()
        rank.kill()
        rank.wait()


def test_every_operator_of_torch_is_counted_by_name(driver, torch_python):
    one = driver("", interpreter=torch_python)
    one.run("import sys; sys.path += ['/usr/lib/python3/dist-packages']")
    one.run("import torch; a = torch.ones(3); torch.set_num_threads(1)")
    with Tracer([TORCH_OPS]) as tracer:
        layer = coverage_of(tracer.watch(one.pid), "pytorch")
        assert layer.status == "attached", layer.reason
        assert layer.probes > 2000
        one.run("for _ in range(23): torch.add(a, a)")
        one.run("for _ in range(7): torch.relu(a)")
        counts = calls_of(tracer, one.pid)
        assert (counts["aten::add_Tensor"], counts["aten::relu"]) == (23, 7)
