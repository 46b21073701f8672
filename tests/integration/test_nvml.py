"""NVML through the real pynvml, on a library that answers what the test says."""

import time

import pytest
from nvml_stub import GIB, Child, Stub, gpu

BEGIN = """
import dataclasses, time
from eacgm.producers.nvml import Nvml
nvml = Nvml()
def read(seconds=10):
    return [dataclasses.asdict(r) for r in nvml.read(time.monotonic_ns() + round(seconds * 1e9))]
def name(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__ + ": " + str(error)
"""
SAMPLER = """
import dataclasses, time
from eacgm.producers.gpu_sampler import GpuSampler
sampler = GpuSampler(200_000_000, retry_ns=100_000_000)
def take():
    begun = time.monotonic()
    taken = sampler.take()
    seconds = time.monotonic() - begun
    return taken.coverage.status, taken.coverage.reason, taken.readings and len(taken.readings), seconds
"""


@pytest.fixture
def stub(tmp_path):
    return Stub(tmp_path)


@pytest.fixture
def child(stub):
    child = Child(stub)
    yield child
    child.close()


def test_readings_and_their_units(stub, child):
    stub.tell(
        {"gpus": 2}, gpu(0), gpu(1, temperature=44), lines=(f"0.process 4711:{30 * GIB}:80", "0.process 4712:1:7")
    )
    child.do(BEGIN)
    first, second = child.ask("read()")
    assert (first["uuid"], first["index"], first["address"], first["lost"]) == ("GPU-0", 0, [0, 0x3B, 0], False)
    assert first["gauges"] == pytest.approx({
        "utilization_ratio": 0.87, "memory_activity_ratio": 0.40, "memory_used_bytes": 32 * GIB,
        "memory_total_bytes": 80 * GIB, "power_watts": 312.5, "power_limit_watts": 400, "temperature_celsius": 61,
        "sm_clock_hertz": 1.41e9, "memory_clock_hertz": 1.593e9, "throttle_reasons": 4, "ecc_errors": 0,
    })  # fmt: skip
    assert first["totals"] == {
        "pcie_replays": 10, "nvlink_errors": 10, "pcie_sent_bytes": 5_000_000, "pcie_received_bytes": 7_000_000
    }  # fmt: skip
    assert first["processes"] == {
        "4711": {"memory_bytes": 30 * GIB, "sm_ratio": 0.8},
        "4712": {"memory_bytes": 1, "sm_ratio": pytest.approx(0.07)},
    }
    assert (second["gauges"]["temperature_celsius"], second["processes"]) == (44, {})


def test_pcie_rates_stand_in_where_there_are_no_counters(stub, child):
    rates = {"pcie_sent_kb": 100, "pcie_received_kb": 200, "field__197": None, "field__198": None}
    stub.tell({"gpus": 1}, gpu(0, **rates))
    child.do(BEGIN)
    (reading,) = child.ask("read()")
    assert reading["rates"] == {"pcie_sent_bytes": 102_400, "pcie_received_bytes": 204_800}
    assert "pcie_sent_bytes" not in reading["totals"]


@pytest.mark.parametrize("changed", [{"power_mw": None}, {"power_mw__error": 999}, {"power_mw": 0xFFFFFFFF}])
def test_what_is_unsupported_fails_or_is_blank_is_none_and_costs_nothing_else(stub, child, changed):
    stub.tell({"gpus": 1}, gpu(0, **changed))
    child.do(BEGIN)
    (reading,) = child.ask("read()")
    assert reading["gauges"].pop("power_watts") is None
    assert None not in reading["gauges"].values()


def test_a_gpu_that_supports_nothing_has_no_reading_and_none_is_zero(stub, child):
    stub.tell({"gpus": 1})
    child.do(BEGIN)
    (reading,) = child.ask("read()")
    assert set(reading["gauges"].values()) == {None}
    assert (reading["totals"], reading["rates"], reading["lost"]) == ({}, {}, False)


def test_a_lost_gpu_is_lost_while_the_other_is_read(stub, child):
    stub.tell({"gpus": 2}, gpu(0), gpu(1))
    child.do(BEGIN)
    assert [reading["lost"] for reading in child.ask("read()")] == [False, False]
    stub.tell({"gpus": 2}, gpu(0), gpu(1, lost=1))
    first, second = child.ask("read()")
    assert (first["lost"], first["gauges"]["temperature_celsius"]) == (False, 61)
    assert (second["lost"], second["uuid"], second["gauges"], second["processes"]) == (True, "GPU-1", {}, None)
    stub.tell({"gpus": 2}, gpu(0), gpu(1))
    assert [reading["lost"] for reading in child.ask("read()")] == [False, False]


@pytest.mark.parametrize(("code", "lost"), [(15, True), (4, False)])
def test_a_gpu_without_a_handle_is_lost_only_if_nvml_says_so_and_is_asked_for_again(stub, child, code, lost):
    stub.tell({"gpus": 2}, gpu(0), gpu(1, handle__error=code))
    child.do(BEGIN)
    first, second = child.ask("read()")
    assert (first["uuid"], second["uuid"], second["lost"], second["gauges"]) == ("GPU-0", "gpu-1", lost, {})
    stub.tell({"gpus": 2}, gpu(0), gpu(1), lines=("xid 1:1:63",))
    assert [(reading["uuid"], reading["lost"]) for reading in child.ask("read()")] == [
        ("GPU-0", False),
        ("GPU-1", False),
    ]
    assert child.ask("nvml.take_xids()") == [["PCI:0000:3c:00", 63]]


def test_mig_instances_have_memory_and_processes_of_their_own_and_no_activity(stub, child):
    stub.tell({"gpus": 1}, gpu(0, mig=2), lines=("0.mig.1.process 99:4096:0",))
    child.do(BEGIN)
    first, second = child.ask("read()")
    assert (first["uuid"], second["uuid"], first["index"], second["index"]) == ("MIG-0-0", "MIG-0-1", 0, 0)
    assert (first["gauges"]["memory_used_bytes"], second["gauges"]["memory_used_bytes"]) == (GIB, 2 * GIB)
    assert second["gauges"]["memory_total_bytes"] == 10 * GIB
    assert "utilization_ratio" not in second["gauges"]
    assert (first["gauges"]["power_watts"], second["gauges"]["power_watts"]) == (312.5, 312.5)
    assert (first["processes"], second["processes"]) == ({}, {"99": {"memory_bytes": 4096, "sm_ratio": None}})


def test_xids_come_once_each_and_repeats_as_often_as_they_happen(stub, child):
    stub.tell({"gpus": 2}, gpu(0), gpu(1))
    child.do(BEGIN)
    assert child.ask("nvml.take_xids()") == []
    stub.tell({"gpus": 2}, gpu(0), gpu(1), lines=("xid 1:0:63", "xid 2:1:79", "xid 3:0:63"))
    expected = [["PCI:0000:3b:00", 63], ["PCI:0000:3c:00", 79], ["PCI:0000:3b:00", 63]]
    assert child.ask("nvml.take_xids()") == expected
    assert child.ask("nvml.take_xids()") == []


def test_a_driver_that_goes_is_told_in_one_line(stub, child):
    stub.tell({"gpus": 1}, gpu(0))
    child.do(BEGIN)
    stub.tell({"driver": 0})
    for call in ("nvml.read(2**62)", "nvml.take_xids()", "Nvml()"):
        answer = child.ask(f"name(lambda: {call})")
        assert "Driver Not Loaded" in answer
        assert "\n" not in answer


def test_what_a_round_has_no_time_for_is_left_out_and_counted(stub, child):
    stub.tell({"gpus": 2, "slow_ms": 20}, gpu(0), gpu(1))
    child.do(BEGIN)
    begun = time.monotonic()
    readings = child.ask("read(0.1)")
    assert time.monotonic() - begun < 5
    assert child.ask("nvml.left_out") > 0
    assert len(readings) == 2
    assert sum(value is not None for reading in readings for value in reading["gauges"].values()) > 0
    # the one that went short begins the next round
    again = child.ask("read(0.1)")
    assert (readings[0]["gauges"]["temperature_celsius"], readings[1]["gauges"]["temperature_celsius"]) == (None, 61)
    assert (again[0]["gauges"]["temperature_celsius"], again[1]["gauges"]["temperature_celsius"]) == (61, None)


def wait_for(child, wanted, seconds=20):
    """Ask the sampler until it says what is wanted."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        taken = child.ask("take()")
        if wanted(taken):
            return taken
        time.sleep(0.05)
    raise AssertionError(f"the last answer was {taken}")


def test_without_a_driver_the_layer_is_absent_and_one_that_comes_is_found(stub, child):
    stub.tell({"driver": 0})
    child.do(SAMPLER)
    status, reason, *_ = wait_for(child, lambda taken: taken[1])
    assert (status, reason) == ("absent", "NVML: Driver Not Loaded; GPUs are read once NVIDIA's driver answers")
    stub.tell({"gpus": 2}, gpu(0), gpu(1))
    assert wait_for(child, lambda taken: taken[2])[:3] == ["attached", "", 2]


def test_a_driver_that_goes_fails_the_layer_until_it_is_back(stub, child):
    stub.tell({"gpus": 1}, gpu(0))
    child.do(SAMPLER)
    wait_for(child, lambda taken: taken[2])
    stub.tell({"driver": 0})
    assert "Driver Not Loaded" in wait_for(child, lambda taken: taken[0] == "failed")[1]
    stub.tell({"gpus": 1}, gpu(0))
    assert wait_for(child, lambda taken: taken[2])[:3] == ["attached", "", 1]


def test_a_driver_that_hangs_holds_nobody_up_and_is_told(stub, child):
    stub.tell({"gpus": 1}, gpu(0))
    child.do(SAMPLER)
    wait_for(child, lambda taken: taken[2])
    stub.tell({"gpus": 1, "slow_ms": 4000}, gpu(0))
    status, reason, _, seconds = wait_for(child, lambda taken: taken[0] == "failed")
    assert (status, reason) == ("failed", "NVML does not answer")
    assert seconds < 0.5
    begun = time.monotonic()
    child.do("sampler.stop()")
    assert time.monotonic() - begun < 3


def test_doctor_says_what_nvml_answers(stub, child):
    child.do("import dataclasses; from eacgm.cli.checks import check_nvml")
    told = "dataclasses.astuple(check_nvml())[1:3]"
    stub.tell({"driver": 0})
    assert child.ask(told) == ["absent", "Driver Not Loaded"]
    stub.tell({"gpus": 2}, gpu(0), gpu(1))
    assert child.ask(told) == ["ok", "2 GPUs, driver 999.1"]
    stub.tell({"gpus": 2}, gpu(0, power_mw=None), gpu(1))
    assert child.ask(told) == ["ok", "2 GPUs, driver 999.1; not supported: power_watts"]
    stub.tell({"gpus": 2}, gpu(0), gpu(1, lost=1))
    assert child.ask(told) == ["limited", "2 GPUs, driver 999.1; lost: gpu-1"]
