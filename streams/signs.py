"""Small memories of facts: which counter grew, who has ended, who has not been seen for how long."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eacgm.events import FloatArray, FrameEvent


@dataclass(slots=True)
class Signs:
    """Facts of earlier frames, by rank."""

    positions: dict[str, dict[int, float]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    unseen: dict[int, int] = field(default_factory=dict)

    def observe(self, frame: FrameEvent, columns: dict[str, int]) -> None:
        """Count for how long each rank has not been seen, and remember who has ended."""
        if "exited" in columns:
            exited = np.nan_to_num(frame.values[:, columns["exited"]]) > 0
            self.ended.update(frame.ranks[exited].tolist())
        for rank, present in zip(frame.ranks.tolist(), frame.present, strict=True):
            self.unseen[rank] = 0 if present or rank in self.ended else self.unseen.get(rank, 0) + 1

    def unseen_windows(self, frame: FrameEvent) -> Any:
        """Return for how many windows each rank has told nothing, shape ``(n_ranks,)``; 0 for ended ones."""
        return np.array([self.unseen.get(rank, 0) for rank in frame.ranks.tolist()])

    def grew(self, name: str, ranks: list[int], values: FloatArray) -> Any:
        """Return a mask ``(n_ranks,)``: whose count is higher than when last told; remembers the counts."""
        known = self.positions.setdefault(name, {})
        hit = np.zeros(len(ranks), dtype=bool)
        for position, (rank, value) in enumerate(zip(ranks, values.tolist(), strict=True)):
            if value == value:
                hit[position] = value > known.get(rank, value)
                known[rank] = value
        return hit

    def state(self) -> dict[str, Any]:
        """Return everything that ``load`` needs."""
        return {
            "positions": [[name, sorted(known.items())] for name, known in self.positions.items()],
            "ended": sorted(self.ended),
            "unseen": sorted(self.unseen.items()),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        self.positions = {name: {int(r): float(v) for r, v in known} for name, known in state["positions"]}
        self.ended = {int(rank) for rank in state["ended"]}
        self.unseen = {int(rank): int(count) for rank, count in state["unseen"]}
