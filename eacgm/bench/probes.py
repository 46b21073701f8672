"""What one traced call costs: a C function in a loop without probes, with a minimal pair of them, with ours.

The variants take turns round by round, so that a busy machine slows all of them; the best round counts, being the one
that was disturbed least. The ratio to the minimal pair is what to read: the nanoseconds are this machine's.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from eacgm.errors import ProbeError, UnsupportedError
from eacgm.producers import kernel, programs
from eacgm.producers.elf import ObjectFile, c_pattern
from eacgm.producers.probe import Probe
from eacgm.producers.tracer import Tracer

#: a pushed frame pointer makes the kernel emulate the first instruction, as in nearly all functions of torch and CUDA
_SOURCE = """
#include <time.h>
__attribute__((noinline, optimize("O0"))) int plain(int n) { return n; }
__attribute__((noinline, optimize("O0"))) int collective(int n) { return n; }
static double loop(int (*function)(int), int calls) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < calls; i++) function(i);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / calls;
}
double loop_plain(int calls) { return loop(plain, calls); }
double loop_collective(int calls) { return loop(collective, calls); }
"""
_LIBRARY = r"libbench_probes\.so"
PROBES = (
    Probe("pytorch", _LIBRARY, "plain", "plain"),
    Probe("collective", _LIBRARY, "collective", "collective", "collective", communicator_argument=1),
)


#: short enough to fit between two interruptions of a busy machine
_LOOP_CALLS = 500


def run(loops: int = 40, rounds: int = 5) -> list[dict[str, Any]]:
    """Return one row per variant: ``ns_per_call``, ``added_ns`` and ``ratio_to_minimal`` (of the added nanoseconds).

    ``lost_records`` are collectives whose record found no room, as the loop outruns any reader. Raises
    ``UnsupportedError`` without gcc or eBPF.
    """
    with tempfile.TemporaryDirectory() as folder:
        return _measure(build_library(Path(folder)), loops, rounds)


def build_library(folder: Path) -> Path:
    """Compile the library whose functions are traced; raises ``UnsupportedError`` without gcc."""
    if shutil.which("gcc") is None:
        raise UnsupportedError("gcc is not installed; this benchmark compiles its own library: apt-get install gcc")
    library = folder / "libbench_probes.so"
    command = ["gcc", "-O1", "-shared", "-fPIC", "-x", "c", "-o", str(library), "-"]
    subprocess.run(command, input=_SOURCE, text=True, check=True)
    return library


def _measure(path: Path, loops: int, rounds: int) -> list[dict[str, Any]]:
    library = ctypes.CDLL(os.fspath(path))
    for loop in (library.loop_plain, library.loop_collective):
        loop.restype = ctypes.c_double

    def plain() -> float:
        return min(float(library.loop_plain(_LOOP_CALLS)) for _ in range(loops))

    def collective() -> float:
        return min(float(library.loop_collective(_LOOP_CALLS)) for _ in range(loops))

    times: dict[str, list[float]] = {}
    lost = 0
    minimal = programs.load(sources=["minimal.c"], maps=["totals"])
    try:
        with Tracer(PROBES) as tracer:
            for _ in range(rounds):
                times.setdefault("no probes", []).append(plain())
                links = _attach_minimal(minimal, path)
                times.setdefault("minimal pair", []).append(plain())
                for link in links:
                    os.close(link)
                reasons = [layer.reason for layer in tracer.watch(os.getpid()) if layer.status != "attached"]
                if reasons:
                    raise ProbeError(f"the benchmark's own library cannot be traced: {reasons[0]}")
                times.setdefault("call", []).append(plain())
                times.setdefault("collective", []).append(collective())
                lost += tracer.collect().observations[os.getpid()].lost
                tracer.unwatch(os.getpid())
    finally:
        minimal.close()
    best = {name: min(values) for name, values in times.items()}
    return [_row(name, best, lost) for name in best]


def _row(name: str, best: dict[str, float], lost: int) -> dict[str, Any]:
    added = best[name] - best["no probes"]
    return {
        "variant": name,
        "ns_per_call": round(best[name], 1),
        "added_ns": round(added, 1),
        "ratio_to_minimal": round(added / (best["minimal pair"] - best["no probes"]), 2),
        "lost_records": lost if name == "collective" else 0,
    }


def _attach_minimal(minimal: programs.Programs, path: Path) -> list[int]:
    ((function,),) = ObjectFile(os.fspath(path)).functions([c_pattern("plain")])
    links: list[int] = []
    for name, at_return in (("minimal_return", True), ("minimal_entry", False)):
        place = (minimal.programs[name], os.fspath(path))
        if minimal.uprobe_multi:
            links.append(kernel.link_uprobes(*place, [function.offset], [0], [0], at_return=at_return))
        else:
            links.extend(kernel.link_uprobe_event(*place, function.offset, 0, 0, at_return=at_return))
    return links
