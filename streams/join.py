"""All ranks' events of one closed window, side by side: a row per rank; a missing rank is a row that says so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, Generic, TypeVar

import numpy as np

from eacgm.config import JoinConfig
from eacgm.events import (
    BoolArray,
    CallsEvent,
    CollectivesEvent,
    Event,
    FloatArray,
    GpuEvent,
    HostEvent,
    IntArray,
    ProcessEvent,
    SamplesEvent,
    no_ints,
)
from eacgm.streams.collectives import CollectiveMatch
from eacgm.streams.joined_window import JoinedWindow
from eacgm.streams.placed import Placed
from eacgm.streams.roster import Roster
from eacgm.streams.window import ClosedWindow

SomeEvent = TypeVar("SomeEvent", bound=Event)
_Kinds = dict[tuple[type[Event], str], list[Any]]

#: the one order of events, whatever the order in which they came
_RANK_ORDER: Callable[[Event], Any] = attrgetter("rank", "node", "pid", "start_ns", "end_ns", "sequence")
_NODE_ORDER: Callable[[Event], Any] = attrgetter("node", "pid", "start_ns", "end_ns", "sequence")
_FIRST: Callable[[tuple[int, Any]], int] = itemgetter(0)
_GPU: Callable[[Event], Any] = attrgetter("node", "gpu_uuid", "rank")
_GPU_ORDER: Callable[[Event], Any] = attrgetter("node", "gpu_uuid", "start_ns", "end_ns", "sequence")


@dataclass(slots=True)
class _Told(Generic[SomeEvent]):
    """Events of one kind and the rank that each names, in order."""

    events: list[SomeEvent]
    ranks: list[Any]

    def keep(self, ranks: Container[int]) -> None:
        """Drop the events of other ranks."""
        if not all(rank in ranks for rank in self.ranks):
            self.events = [event for event in self.events if event.rank in ranks]
            self.ranks = [event.rank for event in self.events]


def _by_kind(events: list[Event]) -> _Kinds:
    """Return the events by type and role, the order kept within each."""
    of_type: defaultdict[type[Event], list[Event]] = defaultdict(list)
    for event in events:
        of_type[event.__class__].append(event)
    kinds: _Kinds = {}
    for kind, same in of_type.items():
        roles = [event.role for event in same]
        if roles.count(roles[0]) == len(roles):
            kinds[kind, roles[0]] = same
            continue
        for role, event in zip(roles, same, strict=True):
            kinds.setdefault((kind, role), []).append(event)
    return kinds


#: a world size is believed at once up to this, beyond it once a 64th of its ranks have been heard of
WORLD_AT_ONCE = 4096
WORLD_SHARE = 64


class Join:
    """Joins the windows of one incarnation of a job."""

    def __init__(self, config: JoinConfig) -> None:
        self._config = config
        self.roster = Roster(config.max_ranks)
        self._match = CollectiveMatch(config.match_windows)
        self.duplicates = 0
        self.unranked = 0
        # the GPUs of the last window, their events' places among it in the order of rows, and those rows
        self._gpus_told: tuple[int, list[Any]] = (-1, [])
        self._gpu_places: list[int] = []
        self._gpu_rows = no_ints()

    @property
    def refused(self) -> int:
        """Events of impossible ranks, and calls of more communicators than are remembered."""
        return self.roster.refused + self._match.refused

    def close(self, window: ClosedWindow) -> JoinedWindow | None:
        """Return the window with its events by rank; None as long as no rank is known."""
        kinds = _by_kind(window.events)
        processes = self._of_ranks(kinds, ProcessEvent)
        hosts = self._of_ranks(kinds, HostEvent)
        workers = self._of_ranks(kinds, HostEvent, "worker")
        calls = self._of_ranks(kinds, CallsEvent)
        collectives = self._of_ranks(kinds, CollectivesEvent)
        samples = self._of_ranks(kinds, SamplesEvent)
        moved = self._admit(processes, (processes, hosts, workers, calls, collectives, samples))
        n_ranks = len(self.roster)
        if not n_ranks:
            return None
        gone = self.roster.exited()
        ended, exit_code = self._identify(processes.events)
        placed_hosts, placed_calls = self._place(hosts), self._place(calls)
        placed_collectives, placed_samples = self._place(collectives), self._place(samples)
        present = ended.copy()
        for placed in (placed_hosts, placed_calls, placed_collectives, placed_samples):
            present[placed.rows] = True
        present[self._rows(processes.ranks)] = True
        gone &= ~present
        lag, table = self._match.match(placed_collectives.events, placed_collectives.rows)
        if ended.any():
            self._match.leave(np.flatnonzero(ended))
        return JoinedWindow(
            start_ns=window.start_ns,
            end_ns=window.end_ns,
            late=window.late,
            ranks=self.roster.ranks,
            nodes=self.roster.nodes,
            groups=self.roster.groups,
            moved=moved,
            present=present,
            ended=ended,
            gone=gone,
            exit_code=exit_code,
            lost=self._lost([event for event in window.events if event.lost]),
            hosts=placed_hosts,
            workers=self._place(workers),
            node_hosts=self._on_nodes(kinds),
            calls=placed_calls,
            collectives=placed_collectives,
            gpus=self._on_gpus(kinds),
            samples=placed_samples,
            collective_calls=table,
            lag_seconds=lag,
            position=self._match.positions(),
        )

    def _of_ranks(self, kinds: _Kinds, kind: type[SomeEvent], role: str = "rank") -> _Told[SomeEvent]:
        """Return the events of one kind that name a rank, in order and without repetitions."""
        events: list[SomeEvent] = kinds.get((kind, role), [])
        ranks: list[Any] = [event.rank for event in events]
        if ranks == self.roster.rank_list:
            return _Told(events, self.roster.rank_list)  # everybody, in order: the usual case
        if None in ranks:
            ranked = [event for event in events if event.rank is not None]
            self.unranked += len(events) - len(ranked)
            events = self._sorted(ranked, _RANK_ORDER)
        elif len(set(ranks)) < len(ranks):
            events = self._sorted(events, _RANK_ORDER)
        elif ranks != sorted(ranks):  # one event a rank: the rank alone decides the order
            events = [event for _, event in sorted(zip(ranks, events, strict=True), key=_FIRST)]
        return _Told(events, [event.rank for event in events])

    def _sorted(self, events: list[SomeEvent], order: Callable[[Event], Any]) -> list[SomeEvent]:
        keys = list(map(order, events))
        places = sorted(range(len(keys)), key=keys.__getitem__)
        if len(set(keys)) == len(keys):
            return [events[place] for place in places]
        kept: list[SomeEvent] = []
        before: Any = None
        for place in places:
            # a message that was delivered twice; without a sequence nobody can tell
            if keys[place] == before and events[place].sequence:
                self.duplicates += 1
                continue
            before = keys[place]
            kept.append(events[place])
        return kept

    def _admit(self, processes: _Told[ProcessEvent], told: Sequence[_Told[Any]]) -> IntArray | None:
        """Expect whoever is told of; drop events of impossible ranks. Return where former rows are now."""
        ranks = set().union(*[of_kind.ranks for of_kind in told if of_kind.ranks is not self.roster.rank_list])
        for event in processes.events:
            size = event.world_size
            if size is not None and len(self.roster) < size <= self._believable(len(ranks)):
                ranks.update(range(size))
        if ranks <= self.roster.rows.keys():
            return None
        moved = self.roster.admit(ranks)
        if moved is not None:
            self._match.resize(moved, len(self.roster))
        for of_kind in told:
            of_kind.keep(self.roster.rows)
        return moved

    def _believable(self, n_told: int) -> int:
        """Return how many ranks a single process can make us expect: a row each is kept for them, silent or not."""
        known = max(len(self.roster), n_told)
        return min(max(WORLD_AT_ONCE, known * WORLD_SHARE), self._config.max_ranks)

    def _rows(self, ranks: list[Any]) -> IntArray:
        if ranks is self.roster.rank_list or ranks == self.roster.rank_list:
            return np.arange(len(ranks))
        return np.array(list(map(self.roster.rows.__getitem__, ranks)), dtype=np.int64)

    def _place(self, told: _Told[SomeEvent]) -> Placed[SomeEvent]:
        """Say whose row each event belongs to, and learn nodes and groups that were not known."""
        events = told.events
        if not events:
            return Placed()
        rows = self._rows(told.ranks)
        nodes = self.roster.nodes
        known = (
            nodes if rows.size == len(nodes) and rows[-1] == rows.size - 1 else [nodes[row] for row in rows.tolist()]
        )
        grouped = isinstance(events[0], SamplesEvent)
        if grouped or [event.node for event in events] != known:
            for event in events:
                self.roster.place(event, getattr(event, "group", ""))
            self.roster.settle()
        return Placed(events, rows)

    def _identify(self, processes: list[ProcessEvent]) -> tuple[BoolArray, FloatArray]:
        ended = np.zeros(len(self.roster), dtype=bool)
        exit_code = np.full(len(self.roster), np.nan)
        for event in sorted(processes, key=lambda e: (e.end_ns, e.state == "exited", e.sequence)):
            assert event.rank is not None
            row = self.roster.rows[event.rank]
            if self.roster.identify(event):
                ended[row] = True
                exit_code[row] = np.nan if event.exit_code is None else event.exit_code
        self.roster.settle()
        return ended, exit_code

    def _on_nodes(self, kinds: _Kinds) -> Placed[HostEvent]:
        events = self._sorted(kinds.get((HostEvent, "node"), []), _NODE_ORDER)
        rows_of = {node: self.roster.rows_of_node(node) for node in {event.node for event in events}}
        return Placed.spread([(event, rows_of[event.node]) for event in events])

    def _on_gpus(self, kinds: _Kinds) -> Placed[GpuEvent]:
        found = [event for (kind, _), events in kinds.items() if kind is GpuEvent for event in events]
        if not found:
            return Placed()
        key = (self.roster.version, list(map(_GPU, found)))
        if key == self._gpus_told:
            # the same GPUs in the same order as in the last window: they have the same places
            return Placed([found[place] for place in self._gpu_places], self._gpu_rows)
        rows = self.roster.rows
        pairs: list[tuple[GpuEvent, list[int]]] = []
        for event in self._sorted(found, _GPU_ORDER):
            if event.rank is not None:
                pairs.append((event, [rows[event.rank]] if event.rank in rows else []))
            else:
                pairs.append((event, self.roster.rows_of_gpu(event.node, event.gpu_uuid, event.process_pid)))
        placed = Placed.spread(pairs)
        if len(set(key[1])) == len(found) and all(self.roster.knows_gpu(*gpu) for gpu in key[1]):
            place_of = {id(event): place for place, event in enumerate(found)}
            self._gpus_told, self._gpu_rows = key, placed.rows
            self._gpu_places = [place_of[id(event)] for event in placed.events]
        return placed

    def _lost(self, events: list[Event]) -> IntArray:
        """Return what producers know they missed, by rank; a node's losses stand with all its ranks."""
        lost = np.zeros(len(self.roster), dtype=np.int64)
        for event in events:
            if event.rank is None:
                lost[self.roster.rows_of_node(event.node)] += event.lost
            elif event.rank in self.roster.rows:
                lost[self.roster.rows[event.rank]] += event.lost
        return lost

    def state(self) -> dict[str, Any]:
        """Return everything that the future depends on."""
        return {
            "roster": self.roster.state(),
            "match": self._match.state(),
            "duplicates": self.duplicates,
            "unranked": self.unranked,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        self.roster.load(state["roster"])
        self._match.load(state["match"])
        self.duplicates, self.unranked = state["duplicates"], state["unranked"]
