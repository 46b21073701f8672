import inspect
from importlib import import_module

import pytest

from eacgm.bench.registry import BENCHMARKS, Benchmark, run


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_has_a_run_that_fits_the_table(name):
    benchmark = BENCHMARKS[name]
    signature = inspect.signature(import_module(benchmark.module).run)
    signature.bind(*["folder"] * benchmark.takes_folder)


def test_a_benchmark_gets_its_folder_and_gives_its_rows(monkeypatch, tmp_path):
    monkeypatch.setitem(BENCHMARKS, "listing", Benchmark("eacgm.bench.cases", "", takes_folder=True))
    monkeypatch.setattr("eacgm.bench.cases.run", lambda folder: iter([{"folder": folder}]), raising=False)
    assert run("listing", tmp_path) == [{"folder": tmp_path}]
