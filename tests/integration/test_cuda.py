"""CUDA's memory, copies, errors and nested calls, on stand-ins for runtime and driver whose every call is known."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from doubles import build

from eacgm.producers.tracer import Tracer

pytestmark = pytest.mark.ebpf

_BEGIN = (
    "driver = ctypes.CDLL('libcuda.so.1')",  # the one that the runtime brought
    "P, Z = ctypes.c_ulong, ctypes.c_size_t",
    "knob = lambda name: ctypes.c_int.in_dll(driver, name)",
    "malloc = lambda n: (p := P(), lib.cudaMalloc(ctypes.byref(p), Z(n)))[0]",
)


@pytest.fixture(scope="session")
def runtime(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuda")
    return build("cudart", folder / "libcudart.so.12", build("cuda", folder / "libcuda.so.1"))


@pytest.fixture(scope="module")
def default_tracer() -> Iterator[Tracer]:
    with Tracer() as tracer:
        yield tracer


@pytest.fixture
def watched(default_tracer, driver, runtime):
    one = driver(library=runtime)
    for line in _BEGIN:
        one.run(line)
    coverage = {layer.layer: layer.status for layer in default_tracer.watch(one.pid)}
    assert coverage["cuda"] == "attached"
    default_tracer.collect()
    yield one
    default_tracer.unwatch(one.pid)


def collect(tracer, one):
    return tracer.collect().observations[one.pid]


def columns(observation, *names):
    calls = observation.calls
    told = zip(calls.function, *(getattr(calls, name).tolist() for name in names), strict=True)
    return {function: values for function, *values in told if any(values)}


def errors(observation):
    calls = observation.calls
    return {
        (calls.function[row], code): count
        for row, code, count in zip(
            calls.error_row.tolist(), calls.error_code.tolist(), calls.error_count.tolist(), strict=True
        )
    }


def test_a_runtime_call_and_the_driver_call_in_it_are_one_and_the_driver_s_own_count(default_tracer, watched):
    watched.run(
        "[lib.cudaStreamSynchronize(None) for _ in range(23)]; [driver.cuStreamSynchronize(None) for _ in range(5)]"
    )
    assert columns(collect(default_tracer, watched), "count") == {"cudaStreamSynchronize": [28]}


def test_what_is_allocated_and_not_freed_is_told_whatever_way_it_was_allocated(default_tracer, watched):
    assert collect(default_tracer, watched).cuda_allocated_bytes is None  # nothing was seen yet
    watched.run("kept = [malloc(1_000_000) for _ in range(7)]")
    observation = collect(default_tracer, watched)
    assert observation.cuda_allocated_bytes == 7_000_000
    assert columns(observation, "count", "payload_bytes") == {"cudaMalloc": [7, 7_000_000]}
    watched.run("[lib.cudaFree(p) for p in kept[:5]]; lib.cudaFree(None); lib.cudaFree(P(12345))")
    observation = collect(default_tracer, watched)
    assert observation.cuda_allocated_bytes == 2_000_000
    assert columns(observation, "count", "payload_bytes") == {"cudaFree": [7, 5_000_000]}
    watched.run("a, b, c = P(), P(), P(); lib.cudaMallocAsync(ctypes.byref(a), Z(300), None)")
    watched.run(
        "lib.cudaMallocManaged(ctypes.byref(b), Z(50), 1); driver.cuMemCreate(ctypes.byref(c), Z(4096), None, P(0))"
    )
    assert collect(default_tracer, watched).cuda_allocated_bytes == 2_000_000 + 300 + 50 + 4096
    watched.run("lib.cudaFreeAsync(a, None); driver.cuMemRelease(c); driver.cuMemFree_v2(b)")
    assert collect(default_tracer, watched).cuda_allocated_bytes == 2_000_000


def test_a_failed_allocation_adds_nothing_and_a_failed_free_takes_nothing(default_tracer, watched):
    watched.run("p = malloc(1000); knob('result').value = 2; malloc(5000); lib.cudaFree(p)")
    observation = collect(default_tracer, watched)
    assert observation.cuda_allocated_bytes == 1000
    assert errors(observation) == {("cudaMalloc", 2): 1, ("cudaFree", 2): 1}
    watched.run("knob('result').value = 0; lib.cudaFree(p)")
    assert collect(default_tracer, watched).cuda_allocated_bytes == 0


def test_threads_that_allocate_and_free_at_the_same_addresses_balance(default_tracer, watched):
    watched.run("work = lambda: [lib.cudaFree(malloc(100 + i)) for i in range(500)]")
    watched.run(
        "ts = [threading.Thread(target=work) for _ in range(4)]; [t.start() for t in ts]; [t.join() for t in ts]"
    )
    observation = collect(default_tracer, watched)
    assert observation.cuda_allocated_bytes == 0
    assert columns(observation, "count") == {"cudaMalloc": [2000], "cudaFree": [2000]}
    assert observation.lost == 0


def test_copies_are_told_by_direction_with_their_bytes(default_tracer, watched):
    watched.run("[lib.cudaMemcpyAsync(None, None, Z(10), kind, None) for kind in (0, 1, 1, 2, 2, 2, 3, 4, 77)]")
    watched.run("[lib.cudaMemcpy(None, None, Z(7), kind) for kind in (1, 2)]")
    watched.run("driver.cuMemcpyHtoDAsync_v2(P(0), None, Z(100), None); driver.cuMemcpyDtoH_v2(None, P(0), Z(1000))")
    assert columns(collect(default_tracer, watched), "count", "payload_bytes") == {
        "cudaMemcpyHtoHAsync": [1, 10],
        "cudaMemcpyHtoDAsync": [3, 120],
        "cudaMemcpyDtoHAsync": [3, 30],
        "cudaMemcpyDtoDAsync": [1, 10],
        "cudaMemcpyAsync": [2, 20],
        "cudaMemcpyHtoD": [1, 7],
        "cudaMemcpyDtoH": [2, 1007],
    }


def test_errors_are_told_by_their_code_each_once_and_not_ready_is_none(default_tracer, watched):
    watched.run("for code in (700, 700, 2, 600): knob('result').value = code; lib.cudaEventQuery(None)")
    watched.run("knob('result').value = 719; lib.cudaStreamSynchronize(None); knob('result').value = 0")
    observation = collect(default_tracer, watched)
    assert errors(observation) == {
        ("cudaEventQuery", 700): 2, ("cudaEventQuery", 2): 1, ("cudaStreamSynchronize", 719): 1,
    }  # fmt: skip
    assert columns(observation, "count", "errors") == {"cudaEventQuery": [4, 3], "cudaStreamSynchronize": [1, 1]}
    watched.run("lib.cudaEventQuery(None)")
    assert errors(collect(default_tracer, watched)) == {}


def test_a_hung_wait_is_in_flight_once_with_its_age(default_tracer, watched):
    watched.run(
        "knob('hanging').value = 1; t = threading.Thread(target=lib.cudaStreamSynchronize, args=(None,)); t.start()"
    )
    time.sleep(0.3)
    observation = collect(default_tracer, watched)
    assert columns(observation, "count", "open_count") == {"cudaStreamSynchronize": [0, 1]}
    assert observation.calls.open_age_ns.max() >= 200_000_000
    watched.run("knob('hanging').value = 0; t.join()")
    assert columns(collect(default_tracer, watched), "count", "open_count") == {"cudaStreamSynchronize": [1, 0]}


def test_a_call_whose_return_was_taken_off_does_not_hide_the_calls_after_it(driver, runtime):
    one = driver(library=runtime)
    for line in _BEGIN:
        one.run(line)
    with Tracer() as tracer:
        tracer.watch(one.pid)
        one.run("knob('hanging').value = 1")
        # long enough: taking probes off takes a second or two
        one.run("release = threading.Timer(5, lambda: setattr(knob('hanging'), 'value', 0)); release.start()")
        one.start("lib.cudaStreamSynchronize(None)")
        time.sleep(0.2)
        tracer.shed("cuda", "taken off")
        begun = time.monotonic()
        one.wait()
        assert time.monotonic() - begun > 0.1, "it returned before its probes were off"
        tracer.restore("cuda")
        tracer.refresh(one.pid)
        tracer.collect()
        # the same thread, from deeper in its stack
        one.run("deep = lambda n: malloc(500) if n == 0 else next(map(deep, [n - 1])); deep(20)")
        observation = collect(tracer, one)
        assert columns(observation, "count") == {"cudaMalloc": [1]}
        assert observation.cuda_allocated_bytes == 500
