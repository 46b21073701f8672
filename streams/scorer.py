"""Residuals to anomalies: the mixture's score, its p-value, and whether it persists, for ranks or for the job.

A scorer owns a mixture, its calibration, its gate and its refits. Every third window is only calibrated on and never
learnt from, so that p-values come from held-out scores. What is unusual is not learnt, nor is a key (rank) that was
unusual often lately or that an open incident blames: a fault must not teach the model that it is normal.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from eacgm.config import Config
from eacgm.events import FloatArray, IntArray
from eacgm.streams.calibration import Calibration, p_threshold
from eacgm.streams.gate import Gate
from eacgm.streams.mixture import Mixture
from eacgm.streams.refit import RefitSchedule
from eacgm.streams.reservoir import Reservoir

#: residuals beyond this many spreads tell no more
CLIP_SPREADS = 40.0
#: every so many windows are held out for calibration
HELD_OUT_EVERY = 3
#: the first windows say more of the young baseline than of the job
YOUNG_WINDOWS = 15
#: p-values below this are unusual enough not to be learnt from
GATE_P_VALUE = 0.005
#: rows of a mini-batch
LEARN_ROWS = 64
#: held-out rows kept, to calibrate a refitted mixture
HELD_OUT_ROWS = 2048


@dataclass(slots=True)
class Scored:
    """One window's verdict on each key; arrays of shape ``(n_keys,)``, contributions ``(n_keys, n_names)`` or None.

    ``unusual`` marks keys that stood out in most of the last windows, enough where a rule can say why; ``anomalous``
    those that did so at the promised false-alarm rate; ``streak`` counts the latter's windows in a row.
    """

    scores: FloatArray
    p_values: FloatArray
    unusual: Any
    anomalous: Any
    streak: IntArray
    contributions: FloatArray | None


class Scorer:
    """The mixture's view of all ranks of a job, or of the job itself (one key)."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.names: list[str] = []
        self.mixture: Mixture | None = None
        self.reservoir: Reservoir | None = None
        self.calibration = Calibration()
        self.gate = Gate()
        self.refits = RefitSchedule(config.mixture, config.detect.warmup_windows)
        self.windows = 0
        self.held_out: deque[FloatArray] = deque()
        self.waiting: list[FloatArray] = []
        self._keys: list[int] = []
        self._flags = np.zeros((0, config.detect.persistence_of, 2), dtype=bool)
        self._streak = np.zeros(0, dtype=np.int64)
        self._rows: FloatArray = np.empty((0, 0))
        self._scores: FloatArray = np.empty(0)
        self._unusual: Any = np.zeros(0, dtype=bool)

    def score(self, names: list[str], keys: list[int], residuals: FloatArray) -> Scored:
        """Score ``residuals`` of shape ``(n_keys, n_names)`` in spreads; an unknown one is neutral."""
        mixture = self._align(names, keys)
        rows = np.clip(self._ordered(names, residuals), -CLIP_SPREADS, CLIP_SPREADS)
        # a reading that is not told is taken for usual: marginalising it, gap by gap, costs ten times more
        rows[np.isnan(rows)] = 0.0
        scores = mixture.score(rows)
        p_values = self.calibration.p_values(scores)
        if self.windows < self.config.detect.warmup_windows:
            p_values = np.full(len(keys), np.nan)
        detect = self.config.detect
        rate = len(keys) * 1000.0 / self.config.window.size_ms
        exceeds = p_values < p_threshold(detect, rate, self.gate.recurrence)
        self._unusual = (p_values < GATE_P_VALUE) | (scores > self.calibration.fence())
        newest = np.stack((exceeds, self._unusual), axis=1)[:, None, :]
        self._flags = np.concatenate((self._flags[:, 1:], newest), axis=1)
        anomalous, unusual = (self._flags.sum(axis=1) >= detect.persistence_windows).T
        self._streak = np.where(anomalous, self._streak + 1, 0)
        self._rows, self._scores = rows, scores
        contributions = mixture.contributions(rows) if unusual.any() else None
        return Scored(scores, p_values, unusual, anomalous, self._streak, contributions)

    def learn(self, accused: Any) -> Any:
        """Learn from the window scored last; return a mask ``(n_keys,)`` of the keys healthy enough to learn from.

        ``accused`` of shape ``(n_keys,)`` marks keys that an open incident blames: nothing is learnt from them.
        """
        assert self.mixture is not None
        assert self.reservoir is not None
        self.windows += 1
        passage = self.gate.observe(np.array(self._keys, dtype=np.int64), self._unusual)
        healthy = passage.learn & ~accused
        if passage.adopted:
            self.calibration.reanchor(np.empty(0))
            self.held_out.clear()
            self.waiting.clear()
            self.reservoir.clear()
            self.refits.hasten(self.windows + YOUNG_WINDOWS)
        if self.windows > YOUNG_WINDOWS and self.windows % HELD_OUT_EVERY == 0:
            keep = passage.calibrate & ~accused & (self._scores <= self.calibration.fence())
            self.calibration.add(self._scores[keep])
            self._hold_out(self._rows[keep])
        elif healthy.any():
            self._learn_rows(self._rows[healthy])
        fitted = self.refits.step(self.windows, self.mixture, self.reservoir)
        if fitted is not None:
            self.mixture = fitted
            held_out = np.vstack(self.held_out) if self.held_out else np.empty((0, fitted.n_features))
            self.calibration.reanchor(fitted.score(held_out))
        return healthy

    def _learn_rows(self, rows: FloatArray) -> None:
        """Let rows wait until a batch is worth the decompositions that follow it; a young model learns at once."""
        assert self.mixture is not None
        assert self.reservoir is not None
        self.waiting.append(rows)
        if self.windows > YOUNG_WINDOWS:
            self.reservoir.offer(rows)
            if sum(map(len, self.waiting)) < LEARN_ROWS:
                return
        self.mixture.learn(np.vstack(self.waiting))
        self.waiting.clear()

    def _hold_out(self, rows: FloatArray) -> None:
        self.held_out.append(rows)
        while len(self.held_out) > 1 and sum(map(len, self.held_out)) > HELD_OUT_ROWS:
            self.held_out.popleft()

    def _align(self, names: list[str], keys: list[int]) -> Mixture:
        """Make room for new names and new keys."""
        if self.mixture is None or self.reservoir is None:
            self.names = list(names)
            self.mixture = Mixture(len(names), self.config.mixture)
            config = self.config.mixture
            self.reservoir = Reservoir(len(names), config.reservoir_rows, config.seed)
        elif names != self.names:
            fresh = [name for name in names if name not in self.names]
            if fresh:
                self.names = self.names + fresh
                self.mixture.extend(len(fresh))
                self.reservoir.extend(len(fresh))
                self.held_out = deque(np.pad(rows, ((0, 0), (0, len(fresh)))) for rows in self.held_out)
                self.waiting = [np.pad(rows, ((0, 0), (0, len(fresh)))) for rows in self.waiting]
        if keys != self._keys:
            old = {key: position for position, key in enumerate(self._keys)}
            source = np.array([old.get(key, -1) for key in keys], dtype=np.int64)
            width = self.config.detect.persistence_of
            self._flags = np.concatenate((self._flags, np.zeros((1, width, 2), dtype=bool)))[source]
            self._streak = np.append(self._streak, 0)[source]
            self._keys = list(keys)
        return self.mixture

    def _ordered(self, names: list[str], residuals: FloatArray) -> FloatArray:
        if names == self.names:
            return residuals
        ordered = np.full((len(residuals), len(self.names)), np.nan)
        position = {name: index for index, name in enumerate(self.names)}
        ordered[:, [position[name] for name in names]] = residuals
        return ordered

    def state(self) -> dict[str, Any]:
        """Return everything that ``load`` needs, as plain values and arrays."""
        return {
            "names": list(self.names),
            "mixture": None if self.mixture is None else self.mixture.state(),
            "reservoir": None if self.reservoir is None else self.reservoir.state(),
            "calibration": self.calibration.state(),
            "gate": self.gate.state(),
            "refits": self.refits.state(),
            "windows": self.windows,
            "held_out": [rows.copy() for rows in self.held_out],
            "waiting": [rows.copy() for rows in self.waiting],
            "keys": list(self._keys),
            "flags": self._flags.copy(),
            "streak": self._streak.copy(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        self.names = list(state["names"])
        config = self.config.mixture
        if state["mixture"] is not None:
            self.mixture = Mixture(len(self.names), config)
            self.mixture.load(state["mixture"])
            self.reservoir = Reservoir(len(self.names), config.reservoir_rows, config.seed)
            self.reservoir.load(state["reservoir"])
        self.calibration.load(state["calibration"])
        self.gate.load(state["gate"])
        self.refits.load(state["refits"])
        self.windows = int(state["windows"])
        self.held_out = deque(np.array(rows, dtype=np.float64) for rows in state["held_out"])
        self.waiting = [np.array(rows, dtype=np.float64) for rows in state["waiting"]]
        self._keys = [int(key) for key in state["keys"]]
        self._flags = np.array(state["flags"], dtype=bool)
        self._streak = np.array(state["streak"], dtype=np.int64)
