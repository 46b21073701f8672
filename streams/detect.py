"""Frames to detections: which ranks, and whether the job, are unlike what is usual, at a promised false-alarm rate.

Only active windows (some step ended) are scored; a window without progress is a silence and has its own reading
(``silence``). The mixture sees each rank's distance from its peers; a second, small one sees the job's distance from
its own past. What they call unusual in most of the last windows is anomalous; unusual windows are not learnt from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from eacgm.config import Config
from eacgm.events import BoolArray, FloatArray, FrameEvent, IntArray
from eacgm.streams.baseline import SMOOTHED_WINDOWS, Baseline, Residuals, Rows, middle
from eacgm.streams.detection import Accusation, Detection
from eacgm.streams.effects import Effects
from eacgm.streams.ledger import Ledger
from eacgm.streams.scorer import Scorer
from eacgm.streams.settling import Settling
from eacgm.streams.signs import Signs
from eacgm.streams.silence import Silence, SilenceTracker
from eacgm.streams.trend import Trend
from eacgm.streams.work import WorkMeter

#: active windows after a silence in which the job as a whole finds its pace again
RESUMING_WINDOWS = 8
#: a silence of so many usual steps, or seconds, interrupts the pace
PAUSE_STEPS = 3.0
PAUSE_SECONDS = 3.0


class Detector:
    """The detector of one job and incarnation; pure: time and seeds come in."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.baseline = Baseline()
        self.silences = SilenceTracker()
        self.signs = Signs()
        self.memory = Trend()
        self.pauses = {"gc_seconds": Ledger(), "data_wait_seconds": Ledger()}
        self.ranks_scorer = Scorer(config)
        self.job_scorer = Scorer(config)
        self.work = WorkMeter()
        self.window = 0
        self.settling = Settling()
        self.recent: deque[FloatArray] = deque(maxlen=SMOOTHED_WINDOWS)
        self.recent_ranks: list[int] = []
        self.job_unusual_windows = 0
        self.resuming_windows = 0
        self.accused: dict[str, Accusation] = {}
        self._groups: list[str] = []
        self._members: list[IntArray] = []

    def observe(self, frame: FrameEvent) -> Detection:
        """Score a frame, then learn from what is usual in it."""
        self.window += 1
        columns = {name: index for index, name in enumerate(frame.features)}
        ranks = frame.ranks.tolist()
        if "step_seconds" in columns and "step_seconds" not in self.baseline.features:
            self._forget_start_up()
        rows = self.baseline.align(ranks, frame.features)
        groups = self._group_positions(frame.groups)
        self.signs.observe(frame, columns)
        silence = self.silences.observe(frame, columns, self.signs)
        active = silence is None and self._is_active(frame, columns)
        self._book(frame, columns, ranks)
        if silence is not None and silence.seconds >= max(PAUSE_SECONDS, PAUSE_STEPS * (self._typical_step() or 0.0)):
            self.resuming_windows = RESUMING_WINDOWS
        detection = self._blank(frame, columns, silence, active)
        if not active:
            return detection
        residuals = self.baseline.observe(rows, frame.values, groups)
        at = columns.get("step_seconds")
        window_seconds = (frame.end_ns - frame.start_ns) / 1e9
        self.settling.observe(None if at is None else float(middle(frame.values[:, at])), window_seconds)
        self._keep_recent(ranks, residuals)
        detection.settled = self.settling.windows > 0
        if not detection.settled:
            return detection
        self._score(detection, residuals, ranks)
        self._learn(detection, residuals, rows)
        self.resuming_windows = max(0, self.resuming_windows - 1)
        detection.effects = Effects(
            list(self.recent), self.baseline, rows, groups, (frame.end_ns - frame.start_ns) / 1e9
        )
        return detection

    def _forget_start_up(self) -> None:
        """Begin anew at the first step: importing libraries for half a minute says nothing about training."""
        self.baseline = Baseline()
        self.ranks_scorer, self.job_scorer = Scorer(self.config), Scorer(self.config)
        self.settling = Settling()
        self.recent.clear()

    def _group_positions(self, groups: list[str]) -> list[IntArray]:
        if groups != self._groups:
            self._groups, self._members = groups, group_positions(groups)
        return self._members

    def _blank(self, frame: FrameEvent, columns: dict[str, int], silence: Silence | None, active: bool) -> Detection:
        n_ranks = len(frame.ranks)
        return Detection(
            frame=frame,
            columns=columns,
            window=self.window,
            active=active,
            over=self.signs.all_ended,
            settled=self.settling.windows > 0,
            warm=self.settling.windows >= self.config.detect.warmup_windows,
            silence=silence,
            scores=np.full(n_ranks, np.nan),
            p_values=np.full(n_ranks, np.nan),
            unusual=np.zeros(n_ranks, dtype=bool),
            anomalous=np.zeros(n_ranks, dtype=bool),
            streak=np.zeros(n_ranks, dtype=np.int64),
            job_score=float("nan"),
            job_p_value=float("nan"),
            job_unusual=False,
            job_unusual_windows=self.job_unusual_windows,
            effects=None,
            contributions=None,
            scored_names=self.ranks_scorer.names,
            step_typical_seconds=self._typical_step(),
        )

    def _is_active(self, frame: FrameEvent, columns: dict[str, int]) -> bool:
        """Tell whether most present ranks ended a step, where steps are told at all."""
        if "step_seconds" not in columns:
            return bool(np.any(frame.present))
        told = ~np.isnan(frame.values[:, columns["step_seconds"]])
        return bool(told.sum() * 2 >= max(1, np.sum(frame.present)))

    def _typical_step(self) -> float | None:
        if "step_seconds" in self.baseline.features:
            column = self.baseline.features.index("step_seconds")
            if self.baseline.job_count[column] > 0:
                return float(np.exp(self.baseline.job_mean[column]))
        return self.settling.typical_seconds()

    def _keep_recent(self, ranks: list[int], residuals: Residuals) -> None:
        if ranks != self.recent_ranks or (self.recent and self.recent[0].shape != residuals.scaled.shape):
            self.recent.clear()
            self.recent_ranks = ranks
        self.recent.append(residuals.scaled)

    def _book(self, frame: FrameEvent, columns: dict[str, int], ranks: list[int]) -> None:
        """Enter pauses and memory, which count in silences too."""
        seconds = (frame.end_ns - frame.start_ns) / 1e9
        # before a job steps or communicates nobody waits for anybody, and imports make much garbage
        if "gc_seconds" in columns and ("step_seconds" in columns or "collective_seq" in columns):
            self.pauses["gc_seconds"].book(self.window, ranks, frame.values[:, columns["gc_seconds"]])
        if "data_wait_seconds" in columns and "step_seconds" in columns:
            wait = frame.values[:, columns["data_wait_seconds"]]
            step = frame.values[:, columns["step_seconds"]]
            with np.errstate(divide="ignore", invalid="ignore"):
                steps = np.maximum(1.0, seconds / step)
            self.pauses["data_wait_seconds"].book(self.window, ranks, wait * steps)
        for name in ("cuda_allocated_bytes", "gpu_memory_used_bytes"):
            if name in columns:
                self.memory.observe(name, frame.values[:, columns[name]])
                break

    def _score(self, detection: Detection, residuals: Residuals, ranks: list[int]) -> None:
        scored, names = self.baseline.scored, self.baseline.scored_names
        peer = self.ranks_scorer.score(names, ranks, residuals.peer_z[:, scored])
        detection.scores, detection.p_values = peer.scores, peer.p_values
        detection.unusual, detection.anomalous = peer.unusual, peer.anomalous
        detection.contributions, detection.streak = peer.contributions, peer.streak
        job = self.job_scorer.score(names, [0], residuals.job_z[None, scored])
        detection.job_score, detection.job_p_value = float(job.scores[0]), float(job.p_values[0])
        detection.job_unusual = bool(job.unusual[0])
        detection.scored_names = self.ranks_scorer.names

    def _learn(self, detection: Detection, residuals: Residuals, rows: Rows) -> None:
        accused = self.is_accused(detection, self.accused)
        resuming = self.resuming_windows > 0
        job_accused = resuming or any(not one.ranks for one in self.accused.values()) or "network" in self.accused
        healthy = self.ranks_scorer.learn(accused)
        job_healthy = bool(self.job_scorer.learn(np.array([job_accused]))[0])
        young = self.settling.windows <= self.config.detect.warmup_windows
        self.baseline.learn(rows, residuals, np.ones(len(detection.scores)) if young else healthy, young or job_healthy)
        if not resuming:
            self.job_unusual_windows = 0 if job_healthy else self.job_unusual_windows + 1
        detection.job_unusual &= not resuming
        self.work.observe(detection.frame, detection.columns, healthy=job_healthy)
        detection.job_unusual_windows = self.job_unusual_windows

    @property
    def n_refits(self) -> int:
        """How many mixtures were refitted so far."""
        return self.ranks_scorer.refits.n_refits + self.job_scorer.refits.n_refits

    def note(self, accused: dict[str, Accusation]) -> None:
        """Take note of what open incidents blame, by cause: nothing is learnt from those until it is over."""
        self.accused = accused

    def is_accused(self, detection: Detection, causes: Iterable[str]) -> BoolArray:
        """Return a mask ``(n_ranks,)``: ranks already blamed for one of ``causes``, so that less confirms it."""
        blamed = [rank for cause in causes if cause in self.accused for rank in self.accused[cause].ranks]
        return np.isin(detection.frame.ranks, blamed) if blamed else np.zeros(len(detection.frame.ranks), dtype=bool)

    def adopt_job(self) -> None:
        """Take the job's last windows as its new usual: the work itself has changed."""
        if self.recent:
            self.baseline.adopt_job(middle(np.stack([middle(scaled) for scaled in self.recent])))
            self.work.adopt()
            self.job_unusual_windows = 0

    def state(self) -> dict[str, Any]:
        """Return everything that ``load`` needs, as plain values and arrays."""
        return {
            "baseline": self.baseline.state(),
            "silences": self.silences.state(),
            "signs": self.signs.state(),
            "work": self.work.state(),
            "memory": self.memory.state(),
            "pauses": {name: ledger.state() for name, ledger in self.pauses.items()},
            "ranks_scorer": self.ranks_scorer.state(),
            "job_scorer": self.job_scorer.state(),
            "window": self.window,
            "settling": self.settling.state(),
            "recent": list(self.recent),
            "recent_ranks": self.recent_ranks,
            "job_unusual_windows": self.job_unusual_windows,
            "resuming_windows": self.resuming_windows,
            "accused": {cause: [one.ranks, one.peak_share] for cause, one in self.accused.items()},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over a saved state."""
        self.baseline.load(state["baseline"])
        self.silences.load(state["silences"])
        self.signs.load(state["signs"])
        self.work.load(state["work"])
        self.memory.load(state["memory"])
        for name, ledger in self.pauses.items():
            ledger.load(state["pauses"][name])
        self.ranks_scorer.load(state["ranks_scorer"])
        self.job_scorer.load(state["job_scorer"])
        self.recent = deque((np.array(item) for item in state["recent"]), maxlen=SMOOTHED_WINDOWS)
        self.settling.load(state["settling"])
        for name in ("window", "recent_ranks", "job_unusual_windows"):
            setattr(self, name, state[name])
        self.resuming_windows = state["resuming_windows"]
        self.accused = {cause: Accusation(list(one[0]), float(one[1])) for cause, one in state["accused"].items()}


def group_positions(groups: list[str]) -> list[IntArray]:
    """Return the positions of each group's members.

    >>> [g.tolist() for g in group_positions(["pp0", "pp1", "pp0"])]
    [[0, 2], [1]]
    """
    members: dict[str, list[int]] = {}
    for position, group in enumerate(groups):
        members.setdefault(group, []).append(position)
    return [np.array(positions, dtype=np.int64) for positions in members.values()]
