"""The shipped table on NVIDIA's own CUDA runtime and NCCL, without a GPU: known numbers of calls, their real codes."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from eacgm.producers import elf
from eacgm.producers.cuda_probes import CUDA_PROBES
from eacgm.producers.libraries import Library
from eacgm.producers.nccl_probes import NCCL_PROBES
from eacgm.producers.sites import find_sites
from eacgm.producers.tracer import Tracer

pytestmark = pytest.mark.ebpf

ROOT = Path(__file__).parents[2]
RUNTIME = [probe for probe in CUDA_PROBES if re.fullmatch(probe.library, "libcudart.so.12")]
NCCL = list(NCCL_PROBES)
#: what the functions return for work that goes on, which is no error
GOES_ON = {"cuda": 600, "nccl": 7}
CALLS = 23
#: looks into its communicator before it checks it
NOT_WITHOUT_COMMUNICATOR = {"ncclCommShrink"}


@pytest.fixture(scope="session")
def nvidia() -> dict[str, Path]:
    done = subprocess.run([ROOT / "tools" / "wheels"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"NVIDIA's libraries are not to be had: {done.stderr.strip()[-200:]}")
    folder = Path(done.stdout.strip()) / "nvidia"
    return {"cuda": folder / "cuda_runtime/lib/libcudart.so.12", "nccl": folder / "nccl/lib/libnccl.so.2"}


@pytest.fixture(scope="module")
def default_tracer() -> Iterator[Tracer]:
    with Tracer() as tracer:
        yield tracer


def symbols(path, probes):
    """The names that each probe's pattern finds, by the probe's symbol."""
    found = elf.ObjectFile(str(path)).functions([elf.c_pattern(probe.symbol) for probe in probes])
    return {probe.symbol: sorted(f.name for f in functions) for probe, functions in zip(probes, found, strict=True)}


@pytest.mark.parametrize(("family", "probes"), [("cuda", RUNTIME), ("nccl", NCCL)])
def test_every_function_of_the_table_is_there_and_can_be_hooked(nvidia, family, probes):
    path = nvidia[family]
    sites = find_sites(probes, Library(path.name, str(path), (0, 0)))
    assert [probe.symbol for row, probe in enumerate(probes) if row not in sites] == []
    assert [reason for site in sites.values() for reason in site.refused] == []


@pytest.mark.parametrize(("family", "probes"), [("cuda", RUNTIME), ("nccl", NCCL)])
def test_each_function_is_counted_as_often_as_it_was_called_with_its_real_code(
    default_tracer, driver, nvidia, family, probes
):
    """Without a GPU most calls fail at once, and say so by their code; some need none and succeed."""
    path = nvidia[family]
    called = {
        symbol: [name for name in names if name not in NOT_WITHOUT_COMMUNICATOR]
        for symbol, names in symbols(path, probes).items()
    }
    one = driver(library=path)
    coverage = {layer.layer: layer for layer in default_tracer.watch(one.pid)}
    assert coverage[probes[0].layer].status == "attached"
    default_tracer.collect()
    names = sorted({name for group in called.values() for name in group})
    one.run("import json; nothing = [ctypes.c_void_p(0)] * 12")
    codes = json.loads(
        one.run(f"print(json.dumps({{n: [getattr(lib, n)(*nothing) for _ in range({CALLS})] for n in {names}}}))")
    )
    observation = default_tracer.collect().observations[one.pid]
    expected, errors, by_code = Counter(), Counter(), Counter()
    for probe in probes:
        function = probe.functions[0]  # a copy's direction is 0 here
        for name in called[probe.symbol]:
            failed = [code for code in codes[name] if code not in (0, GOES_ON[family])]
            expected[function] += CALLS
            errors[function] += len(failed)
            by_code.update((function, code) for code in failed)
    calls = observation.calls
    mine = [row for row, layer in enumerate(calls.layer) if layer == probes[0].layer]
    assert {calls.function[row]: int(calls.count[row]) for row in mine} == dict(expected)
    assert {calls.function[row]: int(calls.errors[row]) for row in mine} == {n: errors[n] for n in expected}
    table = zip(calls.error_row.tolist(), calls.error_code.tolist(), calls.error_count.tolist(), strict=True)
    assert {(calls.function[row], code): count for row, code, count in table} == dict(by_code)
    assert by_code
    assert observation.lost == 0
    default_tracer.unwatch(one.pid)
