"""The agent's GPU events: a checked-in node, its kernel log a pipe, NVML the tests' library."""

import os
import shutil
from pathlib import Path

import pytest
from nvml_stub import GIB, Child, Stub, gpu

NODE = Path(__file__).parents[1] / "unit" / "fixtures" / "node_v2"
AGENT = """
import dataclasses, time
from pathlib import Path
from eacgm.events import GpuEvent, HostEvent, ProcessEvent
from eacgm.producers.agent import Agent
events = []
agent = Agent(events.append, root=Path({root!r}), trace=False, node="n1", interval_ms=200)
def collect():
    # the next interval's end, and a moment for NVML's thread, whose round begins in the middle
    events.clear()
    time.sleep(0.2 - time.time() % 0.2 + 0.01)
    agent.collect()
    return len([e for e in events if isinstance(e, GpuEvent)])
def plain(event, names):
    values = {{name: getattr(event, name) for name in names.split()}}
    return {{name: value.tolist() if hasattr(value, "tolist") else value for name, value in values.items()}}
def gpus(names):
    return [plain(e, names) for e in events if isinstance(e, GpuEvent)]
"""
BUSY = (f"0.process 110:{30 * GIB}:80", f"1.process 111:{30 * GIB}:70", "0.process 111:300000000:0", "1.process 9:1:0")


class Node:
    """A copy of a node with two ranks (pids 110 and 111), each on a GPU, and an agent on it."""

    def __init__(self, folder: Path) -> None:
        self.root = Path(shutil.copytree(NODE, folder / "node", symlinks=True))
        (self.root / "dev").mkdir()
        os.mkfifo(self.root / "dev/kmsg")
        self.stub = Stub(folder)
        self.tell()
        self.log = os.open(self.root / "dev/kmsg", os.O_RDWR | os.O_NONBLOCK)
        self.child = Child(self.stub)
        self.child.do(AGENT.format(root=str(self.root)))
        self.collect()

    def tell(self, first=None, second=None, *lines: str) -> None:
        self.stub.tell({"gpus": 2}, gpu(0, **(first or {})), gpu(1, **(second or {})), lines=(*BUSY, *lines))

    def write(self, *messages: str, priority: int = 3) -> None:
        for message in messages:
            os.write(self.log, f"{priority},1,2,-;{message}\n".encode())

    def collect(self, names="gpu_uuid xids", wanted=lambda told: len(told) == 2):
        """Collect until the GPUs were read; return what was told of each."""
        for _ in range(50):
            self.child.ask("collect()")
            told = self.child.ask(f"gpus({names!r})")
            if wanted(told):
                return told
        raise AssertionError(told)

    def xids(self, n_intervals=3):
        """Return all XIDs of some intervals, by GPU."""
        found = {}
        for _ in range(n_intervals):
            for told in self.collect("gpu_uuid xids xids_nonfatal xid_subcodes", wanted=lambda told: True):
                for name in ("xids", "xids_nonfatal", "xid_subcodes"):
                    if told[name]:
                        found.setdefault(told["gpu_uuid"], {}).setdefault(name, []).extend(told[name])
        return found

    def close(self) -> None:
        self.child.do("agent.close()")
        self.child.close()
        os.close(self.log)


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path)
    yield node
    node.close()


def test_each_gpu_is_told_once_an_interval_to_the_job_on_it(node):
    first, second = node.collect("job incarnation node role gpu_uuid gpu_index power_watts lost_device process_pid")
    assert (first["job"], first["incarnation"], first["node"], first["role"]) == ("llama-ft-7", 1, "n1", "node")
    assert (first["gpu_uuid"], first["gpu_index"], first["power_watts"]) == ("GPU-0", 0, 312.5)
    assert (first["lost_device"], first["process_pid"], second["process_pid"]) == (False, [110, 111], [9, 111])


def test_counters_are_told_as_what_they_grew_by(node):
    names = "gpu_uuid pcie_replays pcie_sent_bytes nvlink_errors"
    assert node.collect(names)[0] == {
        "gpu_uuid": "GPU-0", "pcie_replays": 0, "pcie_sent_bytes": 0, "nvlink_errors": 0
    }  # fmt: skip
    node.tell({"replays": 13, "field__197": 5_000_100, "field__52": 4})
    assert node.collect(names, lambda told: told and told[0]["pcie_replays"])[0] == {
        "gpu_uuid": "GPU-0", "pcie_replays": 3, "pcie_sent_bytes": 100, "nvlink_errors": 1
    }  # fmt: skip
    # reset with its device: by how much it grew nobody knows
    node.tell({"replays": 1})
    assert node.collect(names, lambda told: told and told[0]["pcie_replays"] is None)


def test_a_rank_names_the_gpu_that_it_works_on_and_no_neighbours(node):
    code = "[[t.process.pid, t.gpus, [l.status for l in t.layers if l.layer == 'gpu']] for t in agent._told.values()]"
    told = node.child.ask(code)
    assert sorted(told)[:2] == [[110, ["GPU-0"], ["attached"]], [111, ["GPU-1"], ["attached"]]]


def test_an_xid_of_both_witnesses_is_told_once_and_repeats_are_told(node):
    node.write("NVRM: Xid (PCI:0000:3c:00): 79, pid=111, GPU has fallen off the bus.", "usb 1-1: new device")
    node.tell(None, None, "xid 1:1:79")
    assert node.xids() == {"GPU-1": {"xids": [79]}}
    assert node.xids() == {}
    node.write(*["NVRM: Xid (PCI:0000:3b:00): 63, Row Remapper"] * 3)
    assert node.xids() == {"GPU-0": {"xids": [63, 63, 63]}}


def test_what_the_driver_calls_nonfatal_stands_apart(node):
    node.write("NVRM: Xid (PCI:0000:3b:00): 145, RLW_SRC_TRACK Nonfatal XC0 i0 Link 05 (0x004c2186 0x0)")
    assert node.xids() == {"GPU-0": {"xids_nonfatal": [145], "xid_subcodes": ["145.4"]}}


def test_a_kernel_message_that_user_space_wrote_is_none(node):
    node.write("NVRM: Xid (PCI:0000:3c:00): 79, feigned", priority=11)
    assert node.xids() == {}


def test_a_lost_gpu_has_no_readings_keeps_its_rank_and_comes_back(node):
    node.tell(None, {"lost": 1})
    names = "gpu_uuid lost_device power_watts"
    _, lost = node.collect(names, lambda told: len(told) == 2 and told[1]["lost_device"])
    assert lost == {"gpu_uuid": "GPU-1", "lost_device": True, "power_watts": None}
    assert node.child.ask("agent._gpus_of(111)") == ["GPU-1"]
    node.tell()
    assert node.collect(names, lambda told: len(told) == 2 and not told[1]["lost_device"])


def test_an_xid_is_told_while_the_driver_is_gone(node):
    node.stub.tell({"driver": 0})
    node.collect(wanted=lambda told: not told)
    node.write("NVRM: Xid (PCI:0000:3c:00): 119, pid=1, Timeout after 6s of waiting for RPC response from GPU1 GSP!")
    (told,) = node.collect("gpu_uuid job xids lost_device power_watts", bool)
    assert told == {"gpu_uuid": "GPU-1", "job": "llama-ft-7", "xids": [119], "lost_device": None, "power_watts": None}


def test_the_agent_goes_on_while_the_driver_hangs(node):
    node.stub.tell({"gpus": 2, "slow_ms": 3000}, gpu(0), gpu(1))
    begun = node.child.ask("time.monotonic()")
    for _ in range(10):
        node.child.ask("collect()")
    assert node.child.ask("time.monotonic()") - begun < 2 + 2
    assert node.child.ask("agent._gpus.coverage.reason") == "NVML does not answer"
    assert node.child.ask("len([e for e in events if isinstance(e, HostEvent)])") > 0


def test_a_gpu_is_told_to_its_own_job_and_one_that_nobody_uses_to_every_job(node):
    node.tell()
    node.child.do(
        "from eacgm.producers.messages import Interval; jobs = {'a': 0, 'b': 3}; span = Interval(0, 1, 'n1', None)"
    )
    told = "[[e.gpu_uuid, e.job, e.incarnation] for e in agent._gpus.events(jobs, {110: 'a', 9: 'gone'}, span)]"
    node.collect()
    assert node.child.ask(told) == [["GPU-0", "a", 0], ["GPU-1", "a", 0], ["GPU-1", "b", 3]]


def test_all_instances_of_a_board_carry_its_xid(node):
    node.stub.tell({"gpus": 2}, gpu(0, mig=2), gpu(1), lines=("0.mig.1.process 110:4096:0",))
    node.collect(wanted=lambda told: [gpu["gpu_uuid"] for gpu in told] == ["MIG-0-0", "MIG-0-1", "GPU-1"])
    assert node.child.ask("agent._gpus_of(110)") == ["MIG-0-1"]
    node.write("NVRM: Xid (PCI:0000:3b:00): 94, Contained ECC error")
    assert node.xids() == {"MIG-0-0": {"xids": [94]}, "MIG-0-1": {"xids": [94]}}


def test_a_storm_of_xids_is_cut_off_and_counted(node):
    node.write(*["NVRM: Xid (PCI:0000:3b:00): 63, Row Remapper"] * 100)
    first, _ = node.collect("xids lost", wanted=lambda told: told and told[0]["xids"])
    assert (len(first["xids"]), first["lost"]) == (64, 36)
