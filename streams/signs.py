"""Small memories of facts: which counter grew, who has ended, who has not been seen for how long."""

from __future__ import annotations

from typing import Any

import numpy as np

from eacgm.events import BoolArray, FloatArray, FrameEvent, IntArray


class Signs:
    """Facts of earlier frames; arrays of shape ``(n_ranks,)`` in the order of the last frame's ranks."""

    def __init__(self) -> None:
        self._ranks: IntArray = np.empty(0, dtype=np.int64)
        self._unseen: IntArray = np.empty(0, dtype=np.int64)
        self._ended: BoolArray = np.empty(0, dtype=np.bool_)
        self._positions: dict[str, FloatArray] = {}

    def observe(self, frame: FrameEvent, columns: dict[str, int]) -> None:
        """Count for how long each rank has not been seen, and remember who has ended."""
        self._align(frame.ranks)
        if "exited" in columns:
            self._ended = self._ended | (frame.values[:, columns["exited"]] > 0)
        present = np.array(frame.present, dtype=np.bool_)
        self._unseen = np.where(present | self._ended, 0, self._unseen + 1)

    @property
    def unseen_windows(self) -> IntArray:
        """For how many windows each rank has told nothing; 0 for ended ones."""
        return self._unseen

    @property
    def all_ended(self) -> bool:
        """Whether every rank has ended: the job is over."""
        return bool(self._ended.size and self._ended.all())

    def grew(self, name: str, values: FloatArray) -> BoolArray:
        """Return whose count is higher than when last told; remembers the counts. NaN tells nothing."""
        known = self._positions.get(name)
        if known is None:
            known = np.full(len(values), np.nan)
        self._positions[name] = np.where(np.isnan(values), known, values)
        return np.asarray(values > known)

    def _align(self, ranks: IntArray) -> None:
        if np.array_equal(ranks, self._ranks):
            return
        old = {rank: row for row, rank in enumerate(self._ranks.tolist())}
        source = np.array([old.get(rank, -1) for rank in ranks.tolist()], dtype=np.int64)
        self._unseen = np.append(self._unseen, 0)[source]
        self._ended = np.append(self._ended, False)[source]
        self._positions = {name: np.append(known, np.nan)[source] for name, known in self._positions.items()}
        self._ranks = ranks.copy()

    def state(self) -> dict[str, Any]:
        """Return everything that ``load`` needs."""
        return {
            "ranks": self._ranks,
            "unseen": self._unseen,
            "ended": self._ended,
            "positions": dict(self._positions),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        self._ranks = np.array(state["ranks"], dtype=np.int64)
        self._unseen = np.array(state["unseen"], dtype=np.int64)
        self._ended = np.array(state["ended"], dtype=np.bool_)
        self._positions = {name: np.array(known, dtype=np.float64) for name, known in state["positions"].items()}
