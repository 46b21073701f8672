"""Which keys (ranks) the model may learn from: not unusual ones, and none that was unusual often lately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eacgm.streams.whitening import BoolArray, FloatArray

#: weight of the newest window in a key's level, which is its recent share of unusual windows
MEMORY = 0.1
#: a key is shut out when its level rises above the first, and let in when it falls below the second
SHUT_LEVEL, OPEN_LEVEL = 0.3, 0.15
#: when this share of the keys was unusual or shut out for so many windows, the regime has changed
ADOPTION_SHARE, ADOPTION_WINDOWS = 0.75, 60
#: what one window's unusualness says about the next, before anything was seen: prior pairs, and unusual ones of them
_PRIOR_PAIRS, _PRIOR_REPEATS = 20.0, 1.0
_PAIR_MEMORY = 0.9995


@dataclass(frozen=True, slots=True)
class Passage:
    """The gate's verdict on one window's keys; ``learn`` and ``calibrate`` (n,) are True where the row may be used.

    A row that is unusual is not learnt from but still calibrated on, unless its key was shut out before: leaving out
    high scores for being high would make the next ones look higher than they are. ``adopted`` is True in the window
    in which a change of regime is taken for the new normal.
    """

    learn: BoolArray
    calibrate: BoolArray
    adopted: bool


class Gate:
    """Remembers how often each key was unusual lately."""

    def __init__(self) -> None:
        self.regime_windows = 0
        self._keys: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._levels: FloatArray = np.empty(0)
        self._shut: BoolArray = np.empty(0, dtype=np.bool_)
        self._unusual: BoolArray = np.empty(0, dtype=np.bool_)
        self._pairs, self._repeats = _PRIOR_PAIRS, _PRIOR_REPEATS

    @property
    def recurrence(self) -> float:
        """The probability that an unusual window of a key that is let in is followed by another."""
        return self._repeats / self._pairs

    def observe(self, keys: NDArray[np.int64], unusual: BoolArray) -> Passage:
        """Take in which of the keys (n,), each at most once, were unusual (n,) in this window."""
        self._align(keys)
        previous = self._unusual & ~self._shut
        decay = _PAIR_MEMORY ** float(previous.sum())
        self._pairs = decay * self._pairs + float(previous.sum())
        self._repeats = decay * self._repeats + float((previous & unusual).sum())
        open_before = ~self._shut
        self._levels = self._levels + MEMORY * (unusual - self._levels)
        self._shut = np.where(self._shut, self._levels > OPEN_LEVEL, self._levels > SHUT_LEVEL)
        self._unusual = unusual.copy()
        learn = ~unusual & ~self._shut
        crowded = len(keys) > 0 and float((~learn).mean()) >= ADOPTION_SHARE
        self.regime_windows = self.regime_windows + 1 if crowded else 0
        adopted = self.regime_windows >= ADOPTION_WINDOWS
        if adopted:
            self.regime_windows = 0
            self._levels[:] = 0.0
            self._shut[:] = False
            learn = open_before = np.ones(len(keys), dtype=np.bool_)
        return Passage(learn, open_before, adopted)

    def state(self) -> dict[str, Any]:
        """Return all that ``load`` needs, as copies."""
        return {
            "regime_windows": self.regime_windows,
            "keys": self._keys.copy(),
            "levels": self._levels.copy(),
            "shut": self._shut.copy(),
            "unusual": self._unusual.copy(),
            "pairs": self._pairs,
            "repeats": self._repeats,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` returned."""
        self.regime_windows = int(state["regime_windows"])
        self._keys = np.array(state["keys"], dtype=np.int64)
        self._levels = np.array(state["levels"], dtype=np.float64)
        self._shut = np.array(state["shut"], dtype=np.bool_)
        self._unusual = np.array(state["unusual"], dtype=np.bool_)
        self._pairs, self._repeats = float(state["pairs"]), float(state["repeats"])

    def _align(self, keys: NDArray[np.int64]) -> None:
        """Bring what is remembered into the order of ``keys``; keys that are gone are forgotten."""
        if np.array_equal(keys, self._keys):
            return
        position = {key: index for index, key in enumerate(self._keys.tolist())}
        source = np.array([position.get(key, -1) for key in keys.tolist()], dtype=np.intp)
        self._levels = np.where(source >= 0, np.append(self._levels, 0.0)[source], 0.0)
        self._shut = np.append(self._shut, False)[source] & (source >= 0)
        self._unusual = np.append(self._unusual, False)[source] & (source >= 0)
        self._keys = np.array(keys, dtype=np.int64)
