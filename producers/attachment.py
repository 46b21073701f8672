"""Which probes hang on which libraries, for which processes.

A library's probes are attached once, by its inode, for every process that maps it, now or later; they are taken off
when the last watched process that maps it is gone. One failed probe never stops the others: coverage says which and
why.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from eacgm.errors import ProbeError
from eacgm.events import LayerCoverage
from eacgm.producers import elf, kernel
from eacgm.producers.probes import LAYERS, PROGRAMS, Probe
from eacgm.producers.programs import Programs

_REASONS = 3
_MAPPING = re.compile(r"^([0-9a-f]+-[0-9a-f]+) ..x. \S+ (\S+) (\d+) +(/.*)$", re.MULTILINE)

Inode = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Library:
    """A file that a process has mapped executable: its own name for it, and a path by which we reach the same inode."""

    name: str
    path: str
    inode: Inode


@dataclass(slots=True)
class _Site:
    """What one row of the table came to in one library: places to hook, and why others are not."""

    offsets: list[int] = field(default_factory=list)
    return_offsets: list[int] = field(default_factory=list)
    semaphores: list[int] = field(default_factory=list)
    return_semaphores: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Attached:
    """One library's links, and per row (by its place in the table) the places hooked and the refusals."""

    links: list[int] = field(default_factory=list)
    hooked: dict[int, int] = field(default_factory=dict)
    refused: dict[int, list[str]] = field(default_factory=dict)


def mapped_libraries(pid: int, patterns: Sequence[re.Pattern[str]]) -> list[Library]:
    """Return the files that a process maps executable and whose names match one of the patterns.

    Raises ``ProbeError`` where the process is gone or may not be read.
    """
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
    except OSError as error:
        raise ProbeError(f"process {pid}: its mappings cannot be read ({error.strerror}); is it running?") from None
    found: dict[Inode, Library] = {}
    for addresses, _device, number, path in _MAPPING.findall(text):
        path = path.removesuffix(" (deleted)")
        name = os.path.basename(path)
        if not any(pattern.fullmatch(name) for pattern in patterns):
            continue
        library = _reach(pid, path, name, int(number), addresses)
        if library is not None:
            found.setdefault(library.inode, library)
    return list(found.values())


def _reach(pid: int, path: str, name: str, number: int, addresses: str) -> Library | None:
    """Find the mapped inode: by its path in the process's root, else (replaced, deleted) by the mapping itself."""
    for candidate in (f"/proc/{pid}/root{path}", f"/proc/{pid}/map_files/{addresses}"):
        try:
            status = os.stat(candidate)
        except OSError:
            continue
        if status.st_ino == number or "map_files" in candidate:
            return Library(name, candidate, (status.st_dev, status.st_ino))
    return None


class Attachments:
    """The probes of a table, attached to the libraries of the watched processes.

    ``functions`` lists what the ids in the programs' data mean: ``functions[id]`` is (layer, function, family), id 0 is
    unused; a family (``gloo``, ``nccl``) names the communicators of its collectives.
    """

    def __init__(self, programs: Programs, probes: Sequence[Probe]) -> None:
        self._programs = programs
        self._probes = tuple(probes)
        self._patterns = [re.compile(pattern) for pattern in sorted({probe.library for probe in probes})]
        self.functions: list[tuple[str, str, str]] = [("", "", "")]
        self._ids: list[int] = []
        for probe in self._probes:
            key = (probe.layer, probe.function, probe.choice[0] if probe.choice else "")
            if key not in self.functions:
                self.functions.append(key)
            self._ids.append(self.functions.index(key))
        #: what every library seen so far offers, or why it cannot be read
        self._offers: dict[Inode, dict[int, _Site] | str] = {}
        self._attached: dict[Inode, _Attached] = {}
        self._users: dict[int, dict[Inode, Library]] = {}
        self._coverages: dict[int, list[LayerCoverage]] = {}

    def attach(self, pid: int) -> list[LayerCoverage]:
        """Attach what a process maps and is not attached yet; return the process's coverage, one entry for each layer.

        Raises ``ProbeError`` only where the process itself cannot be read.
        """
        libraries = mapped_libraries(pid, self._patterns)
        known = {library.inode: library for library in libraries}
        if pid in self._coverages and known.keys() == self._users[pid].keys():
            return self._coverages[pid]
        self._users[pid] = known
        self._sweep()
        for library in libraries:
            if library.inode not in self._offers:
                self._offers[library.inode] = self._offer(library)
        offers = {i: offer for i in known if not isinstance(offer := self._offers[i], str)}
        chosen = self._choose(offers)
        for inode, offer in offers.items():
            self._hook(known[inode], {row: site for row, site in offer.items() if row in chosen})
        self._coverages[pid] = [self._coverage(layer, libraries) for layer in LAYERS if self._has(layer)]
        return self._coverages[pid]

    def release(self, pid: int) -> None:
        """Forget a process; take the probes off libraries that no watched process maps any more."""
        self._users.pop(pid, None)
        self._coverages.pop(pid, None)
        self._sweep()

    def _sweep(self) -> None:
        """Take the probes off libraries that nobody uses; their inode numbers may name other files from then on."""
        for inode in set(self._offers) - {inode for libraries in self._users.values() for inode in libraries}:
            del self._offers[inode]
            attached = self._attached.pop(inode, _Attached())
            for link in reversed(attached.links):
                os.close(link)

    def close(self) -> None:
        """Take all probes off."""
        for pid in list(self._users):
            self.release(pid)

    def _has(self, layer: str) -> bool:
        return any(probe.layer == layer for probe in self._probes)

    def _offer(self, library: Library) -> dict[int, _Site] | str:
        """Resolve every row for this library, without those whose symbol it lacks; else say why it cannot be."""
        try:
            return self._sites(library)
        except ProbeError as error:
            return str(error)

    def _sites(self, library: Library) -> dict[int, _Site]:
        rows = [row for row, probe in enumerate(self._probes) if re.fullmatch(probe.library, library.name)]
        named = [row for row in rows if not self._probes[row].symbol.startswith("usdt:")]
        target = elf.ObjectFile(library.path)
        patterns = [_pattern(self._probes[row]) for row in named]
        sites: dict[int, _Site] = {}
        for row, functions in zip(named, target.functions(patterns) if named else [], strict=True):
            site = _function_site(self._probes[row], functions)
            if functions:
                sites[row] = site
        for row in set(rows) - set(named):
            site = _marker_site(self._probes[row], target.markers)
            if site.offsets and site.return_offsets:
                sites[row] = site
        return sites

    def _choose(self, sites: dict[Inode, dict[int, _Site]]) -> set[int]:
        """Return the rows to hook: all without a choice, else those of the lowest number that is complete."""
        found = {row for rows in sites.values() for row in rows}
        lowest: dict[str, int] = {}
        for row in found:
            probe = self._probes[row]
            if probe.choice is not None and probe.kind not in ("issue", "enqueue"):
                family, number = probe.choice
                lowest[family] = min(number, lowest.get(family, number))
        return {row for row in found if (c := self._probes[row].choice) is None or lowest.get(c[0]) == c[1]}

    def _hook(self, library: Library, sites: dict[int, _Site]) -> None:
        attached = self._attached.setdefault(library.inode, _Attached())
        fresh = {row: site for row, site in sites.items() if row not in attached.hooked}
        by_program: dict[tuple[str, str], list[int]] = {}
        for row, site in fresh.items():
            attached.hooked[row] = 0
            attached.refused[row] = list(site.refused)
            if site.offsets:
                by_program.setdefault(PROGRAMS[self._probes[row].kind], []).append(row)
        for (entry, at_return), rows in by_program.items():
            markers = [row for row in rows if self._probes[row].symbol.startswith("usdt:")]
            plain = [row for row in rows if row not in markers]
            for group, returns in ((plain, True), (markers, False)):
                # The return first: a call that begins in between has no entry yet and is left out, not left open.
                failed = self._link(library, attached, at_return, group, fresh, 1, returns) if at_return else set()
                failed |= self._link(library, attached, entry, [r for r in group if r not in failed], fresh, 0, False)
                for row in set(group) - failed:
                    attached.hooked[row] = len(fresh[row].offsets)

    def _link(
        self,
        library: Library,
        attached: _Attached,
        program: str,
        rows: list[int],
        sites: dict[int, _Site],
        side: int,
        at_return: bool,
    ) -> set[int]:
        """Attach one program to the rows' places, at once if the kernel takes them all; return the rows that failed."""
        if not rows:
            return set()
        places: list[tuple[int, int, int]] = []
        for row in rows:
            site = sites[row]
            offsets = site.return_offsets if side else site.offsets
            semaphores = site.return_semaphores if side else site.semaphores
            cookie = self._probes[row].cookie(self._ids[row])
            places += [(offset, cookie, semaphore) for offset, semaphore in zip(offsets, semaphores, strict=True)]
        try:
            attached.links += self._create(program, library.path, places, at_return)
        except OSError as error:
            if len(rows) == 1:
                attached.refused[rows[0]].append(f"{self._probes[rows[0]].symbol}: {error.strerror or error}")
                return set(rows)
            singly = (self._link(library, attached, program, [row], sites, side, at_return) for row in rows)
            return {row for failed in singly for row in failed}
        return set()

    def _create(self, program: str, path: str, places: list[tuple[int, int, int]], at_return: bool) -> list[int]:
        fd = self._programs.programs[program]
        if self._programs.uprobe_multi:
            offsets, cookies, semaphores = zip(*places, strict=True)
            return [kernel.link_uprobes(fd, path, offsets, cookies, semaphores, at_return=at_return)]
        links: list[int] = []
        try:
            for offset, cookie, semaphore in places:
                links += kernel.link_uprobe_event(fd, path, offset, cookie, semaphore, at_return=at_return)
        except OSError:
            for link in links:
                os.close(link)
            raise
        return links

    def _coverage(self, layer: str, libraries: list[Library]) -> LayerCoverage:
        rows = {row for row, probe in enumerate(self._probes) if probe.layer == layer}
        names = "|".join(sorted({self._probes[row].library for row in rows}))
        relevant = [library for library in libraries if re.fullmatch(names, library.name)]
        if not relevant:
            return LayerCoverage(layer=layer, status="absent", reason="library not loaded")
        count = 0
        reasons = [offer for library in relevant if isinstance(offer := self._offers[library.inode], str)]
        for library in relevant:
            attached = self._attached.get(library.inode, _Attached())
            count += sum(n for row, n in attached.hooked.items() if row in rows)
            reasons += [reason for row, refused in attached.refused.items() if row in rows for reason in refused]
        if not count and not reasons:
            found = ", ".join(sorted(library.name for library in relevant))
            return LayerCoverage(layer=layer, status="absent", reason=f"no function of the table in {found}")
        more = f" (and {len(reasons) - _REASONS} more)" if len(reasons) > _REASONS else ""
        status = "attached" if not reasons else "partial" if count else "failed"
        return LayerCoverage(layer=layer, status=status, reason="; ".join(reasons[:_REASONS]) + more, probes=count)


def _pattern(probe: Probe) -> elf.Pattern:
    return elf.cpp_pattern(probe.symbol) if "::" in probe.symbol else elf.c_pattern(probe.symbol, local=probe.local)


def _function_site(probe: Probe, functions: list[elf.Function]) -> _Site:
    site = _Site()
    for function in functions:
        if function.stepped and not probe.rare:
            site.refused.append(
                f"{function.name}: its first instruction ({function.stepped}) would be single-stepped, 14 us a hit"
            )
            continue
        site.offsets.append(function.offset)
    site.return_offsets = site.offsets
    site.semaphores = site.return_semaphores = [0] * len(site.offsets)
    return site


def _marker_site(probe: Probe, markers: Sequence[elf.Marker]) -> _Site:
    _, provider, begin, end = probe.symbol.split(":")
    site = _Site()
    for marker in markers:
        if marker.provider == provider and marker.name == begin:
            site.offsets.append(marker.offset)
            site.semaphores.append(marker.semaphore)
        elif marker.provider == provider and marker.name == end:
            site.return_offsets.append(marker.offset)
            site.return_semaphores.append(marker.semaphore)
    return site
