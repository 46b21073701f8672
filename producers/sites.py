"""Where in a library each probe of the table goes, and why some cannot go anywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from eacgm.producers import elf
from eacgm.producers.libraries import Library
from eacgm.producers.probe import EACH, Probe


@dataclass(slots=True)
class Site:
    """What one row of the table came to in one library: places to hook, and why others are not."""

    offsets: list[int] = field(default_factory=list)
    return_offsets: list[int] = field(default_factory=list)
    semaphores: list[int] = field(default_factory=list)
    return_semaphores: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    #: for each place, what the symbol's ``*`` stands for; empty where it has none
    names: list[str] = field(default_factory=list)
    #: whether the kernel single-steps one of the places
    stepped: bool = False


def find_sites(probes: Sequence[Probe], library: Library) -> dict[int, Site]:
    """Return the places of every probe that the library has a symbol for, by the probe's place in the table.

    Raises ``ProbeError`` where the file cannot be read as a library.
    """
    rows = [row for row, probe in enumerate(probes) if re.fullmatch(probe.library, library.name)]
    named = [row for row in rows if not is_marker(probes[row])]
    target = elf.ObjectFile(library.path)
    patterns = [_pattern(probes[row]) for row in named]
    sites: dict[int, Site] = {}
    found = target.functions(patterns) if named else []
    for row, functions, pattern in zip(named, found, patterns, strict=True):
        if functions:
            sites[row] = _function_site(probes[row], functions, pattern.whole)
    for row in set(rows) - set(named):
        site = _marker_site(probes[row], target.markers)
        if site.offsets and site.return_offsets:
            sites[row] = site
    return sites


def is_marker(probe: Probe) -> bool:
    """Tell whether a probe goes on a pair of USDT markers instead of a function."""
    return probe.symbol.startswith("usdt:")


def _pattern(probe: Probe) -> elf.Pattern:
    return elf.cpp_pattern(probe.symbol) if "::" in probe.symbol else elf.c_pattern(probe.symbol, local=probe.local)


def _function_site(probe: Probe, functions: list[elf.Function], whole: re.Pattern[str]) -> Site:
    site = Site(stepped=probe.rare and any(function.stepped for function in functions))
    for function in functions:
        if function.stepped and not probe.rare:
            site.refused.append(
                f"{function.name}: its first instruction ({function.stepped}) would be single-stepped, 14 us a hit"
            )
            continue
        site.offsets.append(function.offset)
        if probe.function == EACH:
            match = whole.fullmatch(function.name)
            site.names.append(match[1] if match else function.name)
    site.return_offsets = site.offsets
    site.semaphores = site.return_semaphores = [0] * len(site.offsets)
    return site


def _marker_site(probe: Probe, markers: Sequence[elf.Marker]) -> Site:
    _, provider, begin, end = probe.symbol.split(":")
    site = Site()
    for marker in markers:
        if marker.provider == provider and marker.name == begin:
            site.offsets.append(marker.offset)
            site.semaphores.append(marker.semaphore)
        elif marker.provider == provider and marker.name == end:
            site.return_offsets.append(marker.offset)
            site.return_semaphores.append(marker.semaphore)
    return site
