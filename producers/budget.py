"""What watching may cost, and which probes go while it costs more. Pure.

What is compared with the limit is the agent's own CPU time and the time that probes take from the watched processes,
estimated from the calls they count. Groups of probes go in the order of ``ORDER``, one at a time, and come back in the
opposite order. Two things keep it from flapping: the median of several intervals decides, and a group that had to go
again stays away twice as long as before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

#: groups of probes in the order in which they go: what the diagnosis misses least comes first. Steps and
#: collectives are in no group: they are few, and every verdict rests on them
ORDER = ("torch_ops", "cuda", "python", "pytorch")
#: percent of one core
DEFAULT_PERCENT = 20.0

#: intervals whose median decides
_DECIDING = 5
#: a group is not worth losing that takes a smaller part of the limit
_WORTH = 0.02
#: groups come back only while no more than this part of the limit is used
_ROOM = 0.5
#: intervals that a group stays away at least: the first time, and at most
_FIRST_REST, _LONGEST_REST = 30, 1920


@dataclass(frozen=True, slots=True)
class Change:
    """A group of probes that goes (``shed``) or comes back."""

    group: str
    shed: bool


class Budget:
    """Decides interval by interval; ``limit_ratio`` is of one core (0.2 is 20 percent)."""

    def __init__(self, limit_ratio: float) -> None:
        self.limit_ratio = limit_ratio
        self._totals: deque[float] = deque(maxlen=_DECIDING)
        self._groups: deque[Mapping[str, float]] = deque(maxlen=_DECIDING)
        self._gone: list[str] = []
        self._rests: dict[str, int] = {}
        self._since = 0

    @property
    def gone(self) -> tuple[str, ...]:
        """The groups that are away, in the order in which they went."""
        return tuple(self._gone)

    @property
    def exhausted(self) -> bool:
        """Whether the limit is passed and no group is left whose absence would help."""
        return self._cost() > self.limit_ratio and self._next_to_go() is None

    def decide(self, own_ratio: float, probe_ratios: Mapping[str, float]) -> Change | None:
        """Take an interval's cost and return what changes now, at most one group.

        ``own_ratio`` is the agent's CPU time, ``probe_ratios`` the time in each group's probes and, under "", in all
        others: all as shares of one core.
        """
        self._totals.append(own_ratio + sum(probe_ratios.values()))
        self._groups.append(dict(probe_ratios))
        self._since += 1
        cost = self._cost()
        if cost > self.limit_ratio:
            group = self._next_to_go()
            return None if group is None else self._turn(group, shed=True)
        if self._gone and len(self._totals) == _DECIDING and cost <= _ROOM * self.limit_ratio:
            group = self._gone[-1]
            if self._since >= self._rests[group]:
                return self._turn(group, shed=False)
        return None

    def _turn(self, group: str, *, shed: bool) -> Change:
        if shed:
            before = self._rests.get(group)
            self._rests[group] = _FIRST_REST if before is None else min(2 * before, _LONGEST_REST)
            self._gone.append(group)
        else:
            self._gone.remove(group)
        # what was measured before says nothing of what follows
        self._totals.clear()
        self._groups.clear()
        self._since = 0
        return Change(group, shed)

    def _cost(self) -> float:
        """The median share of a core; 0 until there are enough intervals: attaching costs much, and only once."""
        return median(self._totals) if len(self._totals) == _DECIDING else 0.0

    def _next_to_go(self) -> str | None:
        """The first group of the order that is there and worth losing."""
        for group in ORDER:
            if group not in self._gone:
                share = median(ratios.get(group, 0.0) for ratios in self._groups)
                if share >= _WORTH * self.limit_ratio:
                    return group
        return None
