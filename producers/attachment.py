"""Which probes hang on which libraries, for which processes.

A library's probes are attached once, by its inode, for every process that maps it, now or later; they are taken off
when the last watched process that maps it is gone. One failed probe never stops the others: coverage says which and
why.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from eacgm.errors import ProbeError
from eacgm.events import LayerCoverage
from eacgm.producers import kernel
from eacgm.producers.libraries import Inode, Library, mapped_libraries
from eacgm.producers.probe import EACH, LAYERS, MAX_FUNCTIONS, PROGRAMS, Probe
from eacgm.producers.programs import Programs
from eacgm.producers.sites import Site, find_sites, is_marker

_REASONS = 3
#: what a call's two probes take from the watched process, and where the kernel single-steps both (`eacgm bench probes`)
PAIR_NS, STEPPED_PAIR_NS = 1200, 28_000


@dataclass(slots=True)
class _Attached:
    """One library's links by group, and per row (by its place in the table) the places hooked and the refusals."""

    links: dict[str, list[int]] = field(default_factory=dict)
    hooked: dict[int, int] = field(default_factory=dict)
    refused: dict[int, list[str]] = field(default_factory=dict)


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
        self._known_ids: dict[tuple[str, str, str], int] = {}
        self._blocks: set[tuple[str, str, str]] = set()
        #: (layer, function) -> the group that it goes with, and the nanoseconds that a call's probes take
        self.costs: dict[tuple[str, str], tuple[str, int]] = {}
        self._shed: dict[str, str] = {}
        #: what every library seen so far offers, or why it cannot be read
        self._offers: dict[Inode, dict[int, Site] | str] = {}
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

    def shed(self, group: str, reason: str) -> set[int]:
        """Take a group's probes off everywhere until ``restore``; return the ids of its functions.

        ``reason`` is what the coverage tells. What was in flight gets no return any more.
        """
        self._shed[group] = reason
        self._coverages.clear()
        rows = [row for row, probe in enumerate(self._probes) if probe.group == group]
        for attached in self._attached.values():
            _close(attached.links.pop(group, []))
            for row in rows:
                attached.hooked.pop(row, None)
                attached.refused.pop(row, None)
        return {number for key, number in self._known_ids.items() if self.costs[key[:2]][0] == group}

    def restore(self, group: str) -> None:
        """Let a group's probes be attached again, by the next ``attach`` of each process."""
        self._shed.pop(group, None)
        self._coverages.clear()

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
            for links in attached.links.values():
                _close(links)

    def close(self) -> None:
        """Take all probes off."""
        for pid in list(self._users):
            self.release(pid)

    def _has(self, layer: str) -> bool:
        return any(probe.layer == layer for probe in self._probes)

    def _offer(self, library: Library) -> dict[int, Site] | str:
        """Resolve every row for this library, without those whose symbol it lacks; else say why it cannot be."""
        try:
            return find_sites(self._probes, library)
        except ProbeError as error:
            return str(error)

    def _choose(self, sites: dict[Inode, dict[int, Site]]) -> set[int]:
        """Return the rows to hook: all without a choice, else those of the lowest number that is complete."""
        found = {row for rows in sites.values() for row in rows}
        lowest: dict[str, int] = {}
        for row in found:
            probe = self._probes[row]
            if probe.choice is not None and probe.kind not in ("issue", "enqueue"):
                family, number = probe.choice
                lowest[family] = min(number, lowest.get(family, number))
        return {row for row in found if (c := self._probes[row].choice) is None or lowest.get(c[0]) == c[1]}

    def _hook(self, library: Library, sites: dict[int, Site]) -> None:
        attached = self._attached.setdefault(library.inode, _Attached())
        fresh = {row: site for row, site in sites.items() if row not in attached.hooked}
        by_program: dict[tuple[str, str, str], list[int]] = {}
        for row, site in fresh.items():
            probe = self._probes[row]
            if probe.group in self._shed:
                continue
            attached.hooked[row] = 0
            attached.refused[row] = list(site.refused)
            if site.offsets:
                by_program.setdefault((probe.group, *PROGRAMS[probe.kind]), []).append(row)
        for (_, entry, at_return), rows in by_program.items():
            markers = [row for row in rows if is_marker(self._probes[row])]
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
        sites: dict[int, Site],
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
            cookies = self._cookies(self._probes[row], site, len(offsets))
            places += zip(offsets, cookies, semaphores, strict=True)
        group = self._probes[rows[0]].group
        try:
            attached.links.setdefault(group, []).extend(self._create(program, library.path, places, at_return))
        except OSError as error:
            if len(rows) == 1:
                attached.refused[rows[0]].append(f"{self._probes[rows[0]].symbol}: {error.strerror or error}")
                return set(rows)
            singly = (self._link(library, attached, program, [row], sites, side, at_return) for row in rows)
            return {row for failed in singly for row in failed}
        return set()

    def _cookies(self, probe: Probe, site: Site, n_places: int) -> list[int]:
        if probe.function != EACH:
            return [probe.cookie(self._first_id(probe, site))] * n_places
        return [probe.cookie(self._id(probe, f"aten::{name}", site)) for name in site.names]

    def _first_id(self, probe: Probe, site: Site) -> int:
        """Return the number of a probe's function; those of a probe with several follow each other."""
        names = probe.functions
        key = _key(probe, names[0])
        if len(names) > 1 and key not in self._blocks:
            # one of them may have a number already, from a probe of its own: rows of one name are one row in the end
            for name in names:
                self._known_ids.pop((key[0], name, key[2]), None)
            self._blocks.add(key)
        first, *_ = [self._id(probe, name, site) for name in names]
        return first

    def _id(self, probe: Probe, function: str, site: Site) -> int:
        """Return the number of a function in the programs' data, a new one for a new function."""
        key = _key(probe, function)
        if key not in self._known_ids:
            if len(self.functions) >= MAX_FUNCTIONS:
                raise OSError(errno.ENOSPC, f"more than {MAX_FUNCTIONS} functions")
            self._known_ids[key] = len(self.functions)
            self.functions.append(key)
        before = self.costs.get(key[:2], ("", 0))[1]
        self.costs[key[:2]] = (probe.group, max(before, STEPPED_PAIR_NS if site.stepped else PAIR_NS))
        return self._known_ids[key]

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
        if shed := [self._shed[group] for group in sorted({self._probes[row].group for row in rows} & set(self._shed))]:
            reason = "; ".join([*shed, *reasons[:_REASONS]])
            return LayerCoverage(layer=layer, status="partial" if count else "shed", reason=reason, probes=count)
        if not count and not reasons:
            found = ", ".join(sorted(library.name for library in relevant))
            return LayerCoverage(layer=layer, status="absent", reason=f"no function of the table in {found}")
        more = f" (and {len(reasons) - _REASONS} more)" if len(reasons) > _REASONS else ""
        status = "attached" if not reasons else "partial" if count else "failed"
        return LayerCoverage(layer=layer, status=status, reason="; ".join(reasons[:_REASONS]) + more, probes=count)


def _key(probe: Probe, function: str) -> tuple[str, str, str]:
    """Return what a function's number stands for: layer, function, and the family that numbers communicators."""
    return probe.layer, function, probe.family or (probe.choice[0] if probe.choice else "")


def _close(links: list[int]) -> None:
    """Detach, the entries before their returns: a call that begins in between then leaves nothing open."""
    for link in reversed(links):
        os.close(link)
