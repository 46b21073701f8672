"""Named readings from anywhere else, put into a frame's columns: those of the catalogue and any other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from eacgm.events import FloatArray, IntArray, SamplesEvent
from eacgm.streams.catalogue import CATALOGUE, feature
from eacgm.streams.placed import Placed

#: names outside the catalogue that one job may bring; further ones are left out and counted
MOST_OTHERS = 512

_AT = {name: index for index, name in enumerate(CATALOGUE)}
_N_CATALOGUE = len(CATALOGUE)


class SampleReadings:
    """Places readings by name; ``others`` are the names outside the catalogue, in the order of their first sight."""

    def __init__(self) -> None:
        self.others: list[str] = []
        self.refused = 0
        self._columns: dict[str, int] = dict(_AT)
        self._plans: dict[tuple[str, ...], IntArray | None] = {}

    def fill(self, values: FloatArray, placed: Placed[SamplesEvent]) -> FloatArray:
        """Return ``values``, shape ``(n_ranks, n_columns)``, with the readings in it, and columns for new names.

        Of several readings of one name in a window, counters are added up, means averaged, of others the last taken.
        """
        if not placed.events:
            return values
        plans = [self._plan(event.name) for event in placed.events]
        n_columns = _N_CATALOGUE + len(self.others)
        if values.shape[1] < n_columns:
            values = np.pad(values, ((0, 0), (0, n_columns - values.shape[1])), constant_values=np.nan)
        rows = placed.rows.tolist()
        repeated = len(set(rows)) < len(rows)
        for index, (event, row, plan) in enumerate(zip(placed.events, rows, plans, strict=True)):
            if plan is not None and not repeated:
                values[row, plan] = event.value
            elif index == 0 or row != rows[index - 1]:
                same = [e for e, r in zip(placed.events, rows, strict=True) if r == row] if repeated else [event]
                self._combine(values[row], same)
        return values

    def phase(self, placed: Placed[SamplesEvent]) -> str:
        """Return what most sources say the job is doing, empty if none says."""
        told = Counter(event.phase for event in placed.events if event.phase)
        return max(sorted(told), key=told.__getitem__) if told else ""

    def _plan(self, names: list[str]) -> IntArray | None:
        """Return the columns of these names, None where a name is repeated or has no column."""
        key = tuple(names)
        if key in self._plans:
            return self._plans[key]
        for name in names:
            if name not in self._columns:
                if len(self.others) >= MOST_OTHERS:
                    self.refused += 1
                    continue
                self._columns[name] = _N_CATALOGUE + len(self.others)
                self.others.append(name)
        plain = len(set(names)) == len(names) and all(name in self._columns for name in names)
        plan = np.array([self._columns[name] for name in names], dtype=np.int64) if plain else None
        if len(self._plans) >= 4096:
            self._plans.clear()
        self._plans[key] = plan
        return plan

    def _combine(self, row: FloatArray, events: list[SamplesEvent]) -> None:
        readings: dict[str, list[float]] = {}
        for event in events:
            for name, value in zip(event.name, event.value.tolist(), strict=True):
                if name in self._columns and value == value:
                    readings.setdefault(name, []).append(value)
        for name, told in readings.items():
            kind = feature(name).kind
            if kind == "mean":
                combined = sum(told) / len(told)
            elif kind in ("counter", "total"):
                combined = sum(told)
            else:
                combined = told[-1]
            row[self._columns[name]] = combined

    def state(self) -> dict[str, Any]:
        """Return everything that the future depends on."""
        return {"others": list(self.others), "refused": self.refused}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        self.others = list(state["others"])
        self.refused = state["refused"]
        self._columns = dict(_AT) | {name: _N_CATALOGUE + i for i, name in enumerate(self.others)}
        self._plans.clear()
