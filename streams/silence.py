"""What a job without progress is doing: hanging, saving, evaluating, waiting for data, or dead.

A window makes progress when some rank ended a step or the collectives moved on. While nothing does, the other
readings tell the kind of silence. Its age is compared with the job's own past silences of that kind, so that a
checkpoint of half a minute is normal where every checkpoint takes half a minute.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eacgm.events import FloatArray, FrameEvent, IntArray, no_floats, no_ints
from eacgm.streams.baseline import middle
from eacgm.streams.signs import Signs

#: kinds of silence, most telling first
STARTING = "starting"
ENDED = "ended"
DEAD = "dead"
STOPPED = "stopped"
CHECKPOINT = "checkpoint"
DATA = "data"
WORKING = "working"
ABSENT = "absent"
IDLE = "idle"

#: a rank that told nothing for so many windows is gone; a single window is lost now and then
DEAD_WINDOWS = 3

#: readings that are remembered from healthy, active windows to compare a silence with
LEVELS = ("cuda_launches", "cuda_memcpy_bytes", "gpu_power_watts", "io_written_bytes", "cpu_seconds")


@dataclass(slots=True)
class Silence:
    """The silence that a frame is part of.

    ``windows`` is its age, ``seconds`` the same in time; ``kind`` as above; ``missing`` of shape ``(n_ranks,)``
    marks ranks that issued fewer collectives than the others, are stopped or dead; ``writers`` those that write.
    ``started_ns`` is the begin of the first window without progress.
    """

    windows: int
    seconds: float
    kind: str
    missing: Any
    writers: Any
    started_ns: int


@dataclass(slots=True)
class SilenceTracker:
    """Follows the job's progress from frame to frame; pure, all times come with the frames."""

    started: bool = False
    windows: int = 0
    started_ns: int = 0
    sequence: float = -np.inf
    ranks: IntArray = field(default_factory=no_ints)
    issued: FloatArray = field(default_factory=no_floats)
    last_issued: FloatArray = field(default_factory=no_floats)
    kinds: list[str] = field(default_factory=list)
    levels: dict[str, float] = field(default_factory=dict)
    past_seconds: dict[str, list[float]] = field(default_factory=dict)

    def observe(self, frame: FrameEvent, columns: dict[str, int], signs: Signs) -> Silence | None:
        """Return the silence that this frame is part of, None if it made progress."""
        if self._progressed(frame, columns):
            self._end(frame)
            self._remember(frame, columns)
            return None
        if self.windows == 0:
            self.started_ns = frame.start_ns
            self.issued = self.last_issued
        self.windows += 1
        self._count_issued(frame, columns)
        missing = np.zeros(len(frame.ranks), dtype=bool)
        writers = np.zeros(len(frame.ranks), dtype=bool)
        kind = self._kind(frame, columns, signs, missing, writers)
        self.kinds.append(kind)
        seconds = (frame.end_ns - self.started_ns) / 1e9
        return Silence(self.windows, seconds, kind, missing, writers, self.started_ns)

    def _progressed(self, frame: FrameEvent, columns: dict[str, int]) -> bool:
        values = frame.values
        if "step_seconds" in columns or "step_count" in columns:
            stepped = "step_seconds" in columns and bool(np.any(~np.isnan(values[:, columns["step_seconds"]])))
            counted = "step_count" in columns and bool(np.any(values[:, columns["step_count"]] > 0))
            progressed = stepped or counted
        elif "collective_seq" in columns:
            told = values[:, columns["collective_seq"]]
            highest = float(np.max(told, initial=-np.inf, where=~np.isnan(told)))
            progressed, self.sequence = highest > self.sequence, max(highest, self.sequence)
        else:
            progressed = bool(np.any(~np.isnan(values)))
        self.started = self.started or progressed
        return progressed

    def _end(self, frame: FrameEvent) -> None:
        if self.windows:
            seconds = (frame.start_ns - self.started_ns) / 1e9
            past = self.past_seconds.setdefault(self.prevailing, [])
            past.append(seconds)
            del past[:-20]
        self.windows = 0
        self.kinds = []

    def _remember(self, frame: FrameEvent, columns: dict[str, int]) -> None:
        for name in LEVELS:
            if name in columns:
                now = float(middle(frame.values[:, columns[name]]))
                if now == now:
                    old = self.levels.get(name, now)
                    self.levels[name] = old + 0.05 * (now - old)
        if "collective_count" in columns:
            counts = frame.values[:, columns["collective_count"]]
            self.ranks, self.last_issued = frame.ranks, np.where(np.isnan(counts), 0.0, counts)

    def _count_issued(self, frame: FrameEvent, columns: dict[str, int]) -> None:
        if "collective_count" not in columns:
            return
        counts = frame.values[:, columns["collective_count"]]
        if not np.array_equal(frame.ranks, self.ranks):
            # someone joined in the silence: counted from here on
            self.ranks, self.issued = frame.ranks, np.zeros(len(frame.ranks))
        self.issued = self.issued + np.where(np.isnan(counts), 0.0, counts)

    def _kind(self, frame: FrameEvent, columns: dict[str, int], signs: Signs, missing: Any, writers: Any) -> str:
        """Name this window's kind of silence; fills ``missing`` and ``writers``."""

        def column(name: str) -> FloatArray | None:
            return frame.values[:, columns[name]] if name in columns else None

        exited, stopped = column("exited"), column("stopped_ratio")
        if exited is not None and np.any(exited > 0):
            missing |= exited > 0
            return DEAD
        if signs.all_ended:
            return ENDED
        unseen = signs.unseen_windows >= DEAD_WINDOWS
        if unseen.any():
            missing |= unseen
            return DEAD
        if stopped is not None and np.any(stopped > 0.8):
            missing |= stopped > 0.8
            return STOPPED
        if not self.started:
            return STARTING
        self._find_writers(column, writers)
        if writers.any():
            return CHECKPOINT
        waiting = column("io_wait_seconds")
        utilisation = column("gpu_utilization_ratio")
        if waiting is not None and middle(waiting) > 0.3 and (utilisation is None or middle(utilisation) < 0.5):
            return DATA
        if self._works(column):
            return WORKING
        self._find_absent(frame, column, missing)
        if missing.any():
            return ABSENT
        return IDLE

    def _find_writers(self, column: Any, writers: Any) -> None:
        saved = column("checkpoint_write_bytes")
        if saved is not None:
            writers |= saved > 4096
        written = column("io_written_bytes")
        if written is not None:
            usual = max(self.levels.get("io_written_bytes", 0.0), 1e5)
            writers |= written > 10 * usual

    def _works(self, column: Any) -> bool:
        """Tell whether the devices go on working, as in an evaluation: launches or copies continue."""
        for name in ("cuda_launches", "cuda_memcpy_bytes"):
            told, usual = column(name), self.levels.get(name, 0.0)
            if told is not None and usual > 0 and middle(told) > 0.2 * usual:
                return True
        return False

    def _find_absent(self, frame: FrameEvent, column: Any, missing: Any) -> None:
        """Mark the ranks that did not enter the collective that the others wait in."""
        opened = column("collective_open_seconds")
        if opened is not None:
            inside = opened > 0
            if inside.any() and not inside.all():
                missing |= ~inside
        if column("collective_count") is not None:
            most = float(np.median(self.issued))
            missing |= self.issued < most - max(1.0, 0.05 * most)
        sequence = column("collective_seq")
        if sequence is not None and not missing.any():
            missing |= sequence < middle(sequence) - 0.5
        if missing.sum() * 2 >= len(missing):
            # half or more cannot be the culprits of the rest
            missing[:] = False

    @property
    def prevailing(self) -> str:
        """What most of the current silence's windows looked like; of equals the first by alphabet."""
        return max(sorted(set(self.kinds)), key=self.kinds.count)

    def longest(self, kind: str) -> float:
        """Return the longest past silence of a kind that ended by itself (seconds), 0 if there was none."""
        return max(self.past_seconds.get(kind, ()), default=0.0)

    def typical(self, kind: str) -> float | None:
        """Return the median length of past silences of a kind (seconds), None if there was none."""
        past = self.past_seconds.get(kind)
        return float(np.median(past)) if past else None

    def state(self) -> dict[str, Any]:
        """Return everything that ``load`` needs."""
        return {
            "started": self.started,
            "windows": self.windows,
            "started_ns": self.started_ns,
            "sequence": self.sequence,
            "ranks": self.ranks,
            "issued": self.issued,
            "last_issued": self.last_issued,
            "kinds": list(self.kinds),
            "levels": dict(self.levels),
            "past_seconds": {kind: list(past) for kind, past in self.past_seconds.items()},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        for name, value in state.items():
            setattr(self, name, value)
