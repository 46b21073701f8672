"""How long a step takes, from what can be seen of it without instrumentation.

A backward is a step's heartbeat, but counting heartbeats in a window of a few steps is coarse: 1 or 2 steps in a second
say 1 s or 0.5 s. Collectives carry their own end times, and a step issues the same number of them each time; so a
step's length is the time between collectives at the same place of two steps. Counting is the fallback.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eacgm.events import FloatArray, IntArray
from eacgm.streams import scatter
from eacgm.streams.collective_table import CollectiveTable

#: the running counts fade by this much with every window in which a step ended
_FADING = 0.95
#: after windows without a step, more than this many times the usual collectives belong to an evaluation, not a step
_FOREIGN = 1.5
#: so often in a row, it is the steps that have changed
_FOREIGN_TIMES = 3
#: steps that must have been counted before collectives per step are believed
_LEAST_STEPS = 4.0
#: windows in which a rank uses only other communicators before its main one is another
_FORSAKEN_WINDOWS = 10
#: collectives per step are a whole number if they are this close to one
_WHOLE = 0.15
#: a pause of more than this many windows between steps is not part of a step, if steps end within the window
_PAUSE_WINDOWS = 2.0


class Steps:
    """The step clock of each rank; arrays of shape ``(n_ranks,)``."""

    def __init__(self) -> None:
        self._channel = np.empty(0, dtype=np.int64)
        self._anchor_sequence = np.empty(0, dtype=np.int64)
        self._anchor_ns = np.empty(0, dtype=np.int64)
        self._steps = np.empty(0)
        self._channel_calls = np.empty(0)
        self._calls = np.empty(0)
        self._ever = np.empty(0, dtype=bool)
        self._waited_seconds = np.empty(0)
        # collectives since the last window in which a step ended
        self._held_calls = np.empty(0)
        self._held_channel_calls = np.empty(0)
        self._quiet_windows = np.empty(0, dtype=np.int64)
        self._foreign_times = np.empty(0, dtype=np.int64)
        self._elsewhere_windows = np.empty(0, dtype=np.int64)

    def resize(self, old_rows: IntArray, n_ranks: int) -> None:
        """Make room for ranks that appeared; ``old_rows`` says in which row each former row is now."""
        for name, blank in _BLANKS.items():
            before = getattr(self, f"_{name}")
            after = np.full(n_ranks, blank, dtype=before.dtype)
            after[old_rows] = before
            setattr(self, f"_{name}", after)

    def observe(
        self, step_count: FloatArray, covered_seconds: FloatArray, calls: CollectiveTable, window_ns: int
    ) -> FloatArray:
        """Take a window's counted steps, the time they were counted in and its collectives; return ``step_seconds``.

        NaN where no step ended; a step longer than the window counts in the window in which it ends.
        """
        n_ranks = step_count.size
        n_calls = np.bincount(calls.row, minlength=n_ranks).astype(np.float64)
        mine = self._on_main_channel(calls, n_calls > 0)
        self._held_calls += n_calls
        self._held_channel_calls += np.bincount(calls.row[mine], minlength=n_ranks)
        self._count(step_count)
        self._waited_seconds += covered_seconds
        counted = scatter.ratio(self._waited_seconds, step_count)
        self._waited_seconds[step_count > 0] = 0.0
        if not mine.any():
            return np.where(self._anchor_ns > 0, np.nan, counted)
        return self._between_anchors(calls.where(mine), counted, window_ns)

    def _count(self, step_count: FloatArray) -> None:
        """Enter the collectives that belong to the steps that ended into the running counts."""
        ended = step_count > 0
        self._ever |= ended
        usual = _ratio(self._calls, self._steps)
        more = self._held_calls > _FOREIGN * usual * step_count  # False where nothing is usual yet
        foreign = ended & more & (self._quiet_windows > 0) & (self._foreign_times < _FOREIGN_TIMES)
        own = ended & ~foreign
        fading = np.where(own, _FADING, 1.0)
        self._steps = self._steps * fading + np.where(own, step_count, 0.0)
        self._calls = self._calls * fading + np.where(own, self._held_calls, 0.0)
        self._channel_calls = self._channel_calls * fading + np.where(own, self._held_channel_calls, 0.0)
        self._foreign_times = np.where(foreign, self._foreign_times + 1, np.where(own, 0, self._foreign_times))
        self._quiet_windows = np.where(ended, 0, self._quiet_windows + 1)
        self._held_calls[ended] = 0.0
        self._held_channel_calls[ended] = 0.0

    def collectives_per_step(self) -> FloatArray:
        """Return how many collectives a step issues; 1 where no steps are visible, NaN where not yet known."""
        return np.where(self._ever, _ratio(self._calls, self._steps), 1.0)

    def _on_main_channel(self, calls: CollectiveTable, active: Any) -> Any:
        """Return which calls are on their rank's main communicator: the busiest, kept while it is used."""
        n_ranks = self._channel.size
        if not calls.row.size:
            return np.zeros(0, dtype=bool)
        mine = calls.channel == self._channel[calls.row]
        elsewhere = active & (np.bincount(calls.row[mine], minlength=n_ranks) == 0)
        self._elsewhere_windows = np.where(elsewhere, self._elsewhere_windows + 1, 0)
        lost = elsewhere & ((self._channel < 0) | (self._elsewhere_windows > _FORSAKEN_WINDOWS))
        if lost.any():
            n_channels = int(calls.channel.max()) + 1
            counts = np.bincount(calls.row * n_channels + calls.channel, minlength=n_ranks * n_channels)
            self._channel[lost] = counts.reshape(n_ranks, n_channels).argmax(axis=1)[lost]
            self._anchor_ns[lost] = 0
            self._channel_calls[lost] = 0.0
            self._held_channel_calls[lost] = 0.0
            # both counts restart together, or their ratio would be of different times
            self._steps[lost] = 0.0
            self._calls[lost] = 0.0
            mine = calls.channel == self._channel[calls.row]
        return mine

    def _between_anchors(self, calls: CollectiveTable, counted: FloatArray, window_ns: int) -> FloatArray:
        """Return the mean time between calls that stand at the same place of their steps."""
        n_ranks = self._channel.size
        per_step = np.where(self._ever, _ratio(self._channel_calls, self._steps), 1.0)
        known = ~np.isnan(per_step)
        whole = known & (per_step == np.round(per_step)) & (per_step >= 1)
        stride = np.where(whole, per_step, 1.0).astype(np.int64)
        calls = calls.where(calls.sequence % stride[calls.row] == 0)
        order = np.lexsort((calls.end_ns, calls.sequence))
        first, first_ns = _ultimate(calls, order[::-1], n_ranks)
        last, last_ns = _ultimate(calls, order, n_ranks)
        seen = last_ns > 0
        paused = (first_ns - self._anchor_ns > _PAUSE_WINDOWS * window_ns) & (last > first)
        base, base_ns = np.where(paused, first, self._anchor_sequence), np.where(paused, first_ns, self._anchor_ns)
        usable = seen & known & (per_step > 0) & (self._anchor_ns > 0) & (last > base)
        n_steps = np.divide(last - base, per_step, out=np.ones(n_ranks), where=usable)
        seconds = np.divide((last_ns - base_ns) * 1e-9, n_steps, out=np.full(n_ranks, np.nan), where=usable)
        self._anchor_sequence = np.where(seen, last, self._anchor_sequence)
        self._anchor_ns = np.where(seen, last_ns, self._anchor_ns)
        fallback = np.where(known & (self._anchor_ns > 0) & ~usable & self._ever, np.nan, counted)
        return np.where(usable, seconds, fallback)

    def state(self) -> dict[str, Any]:
        """Return everything that the future depends on."""
        return {name: getattr(self, f"_{name}") for name in _BLANKS}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        for name in _BLANKS:
            setattr(self, f"_{name}", state[name].copy())


_BLANKS: dict[str, float] = {
    "channel": -1,
    "anchor_sequence": -1,
    "anchor_ns": 0,
    "steps": 0.0,
    "channel_calls": 0.0,
    "calls": 0.0,
    "ever": 0,
    "waited_seconds": 0.0,
    "held_calls": 0.0,
    "held_channel_calls": 0.0,
    "quiet_windows": 0,
    "foreign_times": 0,
    "elsewhere_windows": 0,
}


def _ratio(calls: FloatArray, steps: FloatArray) -> FloatArray:
    """Return calls per step, a whole number where it is nearly one; NaN while too few steps were counted."""
    ratio = np.full(calls.size, np.nan)
    np.divide(calls, steps, out=ratio, where=steps >= _LEAST_STEPS)
    whole = np.round(ratio)
    return np.where((np.abs(ratio - whole) < _WHOLE) & (whole >= 1), whole, ratio)


def _ultimate(calls: CollectiveTable, order: IntArray, n_ranks: int) -> tuple[IntArray, IntArray]:
    """Return each rank's last call in an order: its sequence, -1 where it has none, and its end (UTC ns), 0 then."""
    sequence = np.full(n_ranks, -1, dtype=np.int64)
    end_ns = np.zeros(n_ranks, dtype=np.int64)
    # assignment keeps the last of repeated rows
    rows = calls.row[order]
    sequence[rows] = calls.sequence[order]
    end_ns[rows] = calls.end_ns[order]
    return sequence, end_ns
