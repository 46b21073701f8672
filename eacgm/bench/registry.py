"""The project's benchmarks by name; a module is imported only when its benchmark runs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple


class Benchmark(NamedTuple):
    """One benchmark: the module with its ``run``, what it measures, and whether ``run`` takes a folder of data."""

    module: str
    summary: str
    takes_folder: bool = False


BENCHMARKS: dict[str, Benchmark] = {
    "probes": Benchmark("eacgm.bench.probes", "Nanoseconds a traced call costs, against a minimal pair of probes."),
    "readers": Benchmark("eacgm.bench.readers", "Reading a map of 50,000 entries, and a ring full of collectives."),
    "agent": Benchmark("eacgm.bench.agent", "The agent's CPU share and memory beside a real load."),
    "overhead": Benchmark("eacgm.bench.overhead", "A real training step with and without the probes, interleaved."),
    "mixture": Benchmark("eacgm.bench.mixture", "Mixture score and learn, rows/s, against scikit-learn."),
    "detectors": Benchmark("eacgm.bench.detectors", "Average precision on labelled data, against baselines.", True),
    "pipeline": Benchmark("eacgm.bench.pipeline", "Rank-windows/s from decoded events to verdict, room by room."),
    "worker": Benchmark("eacgm.bench.worker", "Rank-windows/s of a worker from topics to verdict; needs a broker."),
    "takeover": Benchmark("eacgm.bench.takeover", "Seconds until a killed worker's jobs go on; needs a broker."),
    "soak": Benchmark("eacgm.bench.soak", "A worker's memory over twenty minutes; needs a broker."),
    "delivery": Benchmark("eacgm.bench.delivery", "Seconds from an event to its frame and alert; needs a broker."),
}


def run(name: str, folder: Path | None = None) -> list[dict[str, Any]]:
    """Run a benchmark and return its rows; raises ``KeyError`` for a name that is not in the table."""
    benchmark = BENCHMARKS[name]
    module = import_module(benchmark.module)
    rows = module.run(folder) if benchmark.takes_folder else module.run()
    return list(rows)
