"""A reading that only grows: memory that leaks, told apart from an allocator that warms up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eacgm.events import BoolArray, FloatArray

#: the span is cut into this many blocks, each of which must be above the one before
N_BLOCKS = 8
#: windows a block lasts
BLOCK_WINDOWS = 20
#: growth over the whole span that is worth telling (share of the first block's level)
MIN_GROWTH_RATIO = 0.03
#: fewer blocks will do where the growth is as much as this
N_FAST_BLOCKS = 5
FAST_GROWTH_RATIO = 0.15


def _grows(levels: FloatArray, least_ratio: float) -> BoolArray:
    """Tell which columns of ``levels`` (blocks, ranks) rise in every block, by enough, without levelling off."""
    rises = np.diff(levels, axis=0)
    half = len(rises) // 2
    early, late = rises[:half].mean(axis=0), rises[-half:].mean(axis=0)
    growth = levels[-1] - levels[0]
    steady = (rises > 0).all(axis=0) & (rises.max(axis=0) < 0.5 * growth)
    return np.asarray(steady & (late > 0.5 * early) & (growth > least_ratio * levels[0]))


@dataclass(slots=True)
class Trend:
    """Means of the last blocks of one reading, for every rank.

    ``name`` is the reading's, ``blocks`` are arrays of shape ``(n_ranks,)`` in its unit. Another reading or another
    number of ranks starts it anew.
    """

    name: str = ""
    blocks: list[FloatArray] = field(default_factory=list)
    total: FloatArray = field(default_factory=lambda: np.empty(0))
    count: FloatArray = field(default_factory=lambda: np.empty(0))
    windows: int = 0
    verdict: BoolArray = field(default_factory=lambda: np.empty(0, dtype=bool))

    def observe(self, name: str, values: FloatArray) -> None:
        """Add a window: ``values`` of shape ``(n_ranks,)`` of the reading ``name``, NaN where not told."""
        if len(values) != len(self.total) or name != self.name:
            self.total, self.count, self.windows, self.blocks = np.zeros(len(values)), np.zeros(len(values)), 0, []
            self.name, self.verdict = name, np.zeros(len(values), dtype=bool)
        told = ~np.isnan(values)
        self.total = self.total + np.where(told, values, 0.0)
        self.count = self.count + told
        self.windows += 1
        if self.windows == BLOCK_WINDOWS:
            self.blocks.append(np.where(self.count > 0, self.total / np.maximum(self.count, 1.0), np.nan))
            del self.blocks[:-N_BLOCKS]
            self.total, self.count, self.windows = np.zeros(len(values)), np.zeros(len(values)), 0
            self.verdict = self._judge()

    def growing(self) -> BoolArray:
        """Return a mask of shape ``(n_ranks,)``: ranks whose reading grew in every block and does not level off."""
        return self.verdict

    def _judge(self) -> BoolArray:
        growing = np.zeros(len(self.total), dtype=bool)
        if len(self.blocks) >= N_FAST_BLOCKS:
            growing |= _grows(np.stack(self.blocks[-N_FAST_BLOCKS:]), FAST_GROWTH_RATIO)
        if len(self.blocks) >= N_BLOCKS:
            growing |= _grows(np.stack(self.blocks), MIN_GROWTH_RATIO)
        return growing

    def span(self) -> tuple[FloatArray, FloatArray]:
        """Return each rank's level in the first block in which it told, and in the last one, each ``(n_ranks,)``.

        NaN for a rank that never told; only after ``growing`` said yes.
        """
        told = ~np.isnan(np.stack(self.blocks))
        first = np.take_along_axis(np.stack(self.blocks), told.argmax(axis=0)[None], axis=0)[0]
        return first, self.blocks[-1]

    def state(self) -> dict[str, Any]:
        """Return everything that ``load`` needs."""
        return {
            "name": self.name,
            "blocks": list(self.blocks),
            "total": self.total,
            "count": self.count,
            "windows": self.windows,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        self.name = state["name"]
        self.blocks = [np.array(block, dtype=np.float64) for block in state["blocks"]]
        self.total = np.array(state["total"], dtype=np.float64)
        self.count = np.array(state["count"], dtype=np.float64)
        self.windows = int(state["windows"])
        self.verdict = self._judge()
