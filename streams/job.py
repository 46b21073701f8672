"""One job on its way through the rooms: windows, then by incarnation join, features, detection, diagnosis, alerts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from eacgm.config import Config
from eacgm.events import AlertEvent, Event, FrameEvent, no_floats
from eacgm.streams.alert import Incidents
from eacgm.streams.detect import Detector
from eacgm.streams.diagnose import diagnose
from eacgm.streams.features import Features
from eacgm.streams.join import Join
from eacgm.streams.statistics import Statistics
from eacgm.streams.window import ClosedWindow, Windows


class Incarnation:
    """One run of a job between two restarts: who belongs to it, what is usual in it, what is wrong with it."""

    def __init__(self, job: str, number: int, config: Config) -> None:
        self.job = job
        self.number = number
        self.join = Join(config.join)
        self.features = Features(config)
        self.detector = Detector(config)
        self.incidents = Incidents(config.alert)
        #: the newest frame's scores, one per rank (nats; NaN while the mixture cannot tell)
        self.scores = no_floats()
        self._newest: FrameEvent | None = None

    def close(self, window: ClosedWindow, statistics: Statistics) -> list[Event]:
        """Return the window's frame and the alerts that follow from it."""
        began = perf_counter()
        joined = self.join.close(window)
        joined_at = perf_counter()
        statistics.join_seconds += joined_at - began
        if joined is None or (joined.gone.all() and not self.incidents.open):
            return []  # nobody is known yet, or all have ended and nothing is left to resolve
        self._newest = frame = self.features.frame(joined, self.job, self.number)
        statistics.features_seconds += perf_counter() - joined_at
        statistics.frames += 1
        statistics.rank_windows += len(joined.ranks)
        statistics.lost += frame.lost
        return [frame, *self._judge(frame, statistics)]

    def _judge(self, frame: FrameEvent, statistics: Statistics) -> list[AlertEvent]:
        began = perf_counter()
        detection = self.detector.observe(frame)
        self.scores = detection.scores
        detected_at = perf_counter()
        findings = diagnose(detection, self.detector)
        diagnosed_at = perf_counter()
        alerts = self.incidents.update(frame, findings, active=detection.active or detection.over)
        self.detector.note(self.incidents.accused())
        statistics.detect_seconds += detected_at - began
        statistics.diagnose_seconds += diagnosed_at - detected_at
        statistics.alert_seconds += perf_counter() - diagnosed_at
        statistics.alerts += len(alerts)
        return alerts

    def retire(self, window: ClosedWindow, statistics: Statistics) -> list[AlertEvent]:
        """Resolve what is still open, because a newer incarnation began in ``window``."""
        if self._newest is None:
            return []
        frame = replace(self._newest, start_ns=window.start_ns, end_ns=window.end_ns)
        alerts = self.incidents.retire(frame)
        statistics.alerts += len(alerts)
        return alerts

    def counts(self) -> dict[str, int]:
        """Return what this incarnation counts itself, by the names of ``Statistics``."""
        return {
            "refused": self.join.refused + self.features.refused,
            "duplicates": self.join.duplicates,
            "unranked": self.join.unranked,
            "refits": self.detector.n_refits,
        }

    def state(self) -> dict[str, Any]:
        """Return everything that the future depends on."""
        newest = self._newest
        return {
            # what the readings were is nobody's business any more
            "newest": newest and replace(newest, features=[], values=np.empty((len(newest.ranks), 0))),
            "number": self.number,
            "join": self.join.state(),
            "features": self.features.state(),
            "detector": self.detector.state(),
            "incidents": self.incidents.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        self.number, self._newest = state["number"], state["newest"]
        self.join.load(state["join"])
        self.features.load(state["features"])
        self.detector.load(state["detector"])
        self.incidents.load(state["incidents"])


class Job:
    """One job: its open windows and its current incarnation; a restarted job retires the one before."""

    def __init__(self, name: str, config: Config) -> None:
        self.name = name
        self.windows = Windows(config.window)
        self.incarnation: Incarnation | None = None
        #: the clock's reading when the job was last heard of (ns)
        self.heard_ns = 0
        #: events of an incarnation that a newer one has retired
        self.stale = 0
        self._retired: Counter[str] = Counter()
        self._config = config

    def close(self, windows: Sequence[ClosedWindow], statistics: Statistics) -> list[Event]:
        """Return the frames of closed windows, each followed by its alerts."""
        out: list[Event] = []
        for window in windows:
            numbers = {event.incarnation for event in window.events}
            current = self.incarnation
            if current is not None and numbers <= {current.number}:
                out += current.close(window, statistics)
            elif current is not None or numbers:
                out += self._restart(window, sorted(numbers), statistics)
        statistics.windows += len(windows)
        return out

    def _restart(self, window: ClosedWindow, numbers: list[int], statistics: Statistics) -> list[Event]:
        out: list[Event] = []
        for number in numbers:
            events = [event for event in window.events if event.incarnation == number]
            if self.incarnation is not None and number < self.incarnation.number:
                self.stale += len(events)
                continue
            if self.incarnation is not None and number > self.incarnation.number:
                out += self.incarnation.retire(window, statistics)
                self._retired.update(self.incarnation.counts())
                self.incarnation = None
            if self.incarnation is None:
                self.incarnation = Incarnation(self.name, number, self._config)
            part = ClosedWindow(window.start_ns, window.end_ns, events, window.late)
            out += self.incarnation.close(part, statistics)
        if numbers and self.incarnation is not None and self.incarnation.number not in numbers:
            out += self.incarnation.close(ClosedWindow(window.start_ns, window.end_ns, [], window.late), statistics)
        return out

    def counts(self) -> dict[str, int]:
        """Return what all incarnations so far count themselves, by the names of ``Statistics``."""
        now = Counter(self._retired)
        if self.incarnation is not None:
            now.update(self.incarnation.counts())
        now.update(late=self.windows.late, refused=self.windows.refused, stale=self.stale)
        return now

    @property
    def n_ranks(self) -> int:
        """The number of ranks that the current incarnation expects."""
        return len(self.incarnation.join.roster) if self.incarnation is not None else 0

    def state(self) -> dict[str, Any]:
        """Return everything that the future depends on."""
        return {
            "name": self.name,
            "windows": self.windows.state(),
            "incarnation": None if self.incarnation is None else self.incarnation.state(),
            "heard_ns": self.heard_ns,
            "stale": self.stale,
            "retired": dict(self._retired),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        self.windows.load(state["windows"])
        self.heard_ns, self.stale = state["heard_ns"], state["stale"]
        self._retired = Counter(state["retired"])
        self.incarnation = None
        if state["incarnation"] is not None:
            self.incarnation = Incarnation(self.name, state["incarnation"]["number"], self._config)
            self.incarnation.load(state["incarnation"])
