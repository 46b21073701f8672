"""The demo as a play in four acts: start, warm-up, fault, recovery; and the verdict on what was seen.

Pure: it is told of frames, alerts and the time, says what the stage hands (``eacgm.cli.demo``) should do next, and
never looks at a clock itself. The same play judges a live run and a recorded one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from eacgm.demo.faults import RIGHT_CAUSES
from eacgm.events import AlertEvent, FrameEvent
from eacgm.streams.settling import SETTLING_WINDOWS

NS_PER_SECOND = 1_000_000_000
#: windows beyond the detector's warm-up before the fault is planted: two runs for the steps to settle, and a little
MARGIN_WINDOWS = 2 * SETTLING_WINDOWS + 3
#: how long a fault is held at most, waiting for its alert
FAULT_SECONDS = 40.0
#: how long a fault goes on after its alert, so that the incident is seen to stand
STAND_SECONDS = 5.0


class Act(Enum):
    """Where the play is."""

    START = "start"
    WARM_UP = "warm-up"
    FAULT = "fault"
    RECOVERY = "recovery"
    END = "end"


class Cue(Enum):
    """What is to be done now."""

    WAIT = "wait"
    PLANT = "plant"
    STOP = "stop"
    END = "end"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the demo ended: ``right`` decides the exit status, ``text`` says why in one line.

    ``delay_seconds`` is from the fault to its alert, None if there was none.
    """

    right: bool
    text: str
    delay_seconds: float | None = None


@dataclass(slots=True)
class Play:
    """The demo of one fault (``eacgm.demo.faults.KINDS``) on one rank.

    ``warmup_windows`` is the detector's; ``limit_seconds`` bounds the whole play. Times are UTC ns.
    """

    fault: str
    rank: int
    n_ranks: int
    warmup_windows: int
    limit_seconds: float
    started_ns: int
    act: Act = Act.START
    windows: int = 0
    complete_windows: int = 0
    planted_ns: int | None = None
    stopped_ns: int | None = None
    alerted_ns: int | None = None
    #: incident -> its newest alert, and when it was opened
    incidents: dict[str, AlertEvent] = field(default_factory=dict)
    opened_ns: dict[str, int] = field(default_factory=dict)
    #: incident -> the newest alert before its resolution: what it finally said
    said: dict[str, AlertEvent] = field(default_factory=dict)

    def see_frame(self, frame: FrameEvent) -> None:
        """Take note of a joined window."""
        self.windows += 1
        if len(frame.ranks) >= self.n_ranks and all(frame.present) and "step_seconds" in frame.features:
            self.complete_windows += 1
            if self.act is Act.START:
                self.act = Act.WARM_UP

    def see_alert(self, alert: AlertEvent, now_ns: int) -> None:
        """Take note of an alert that was received at ``now_ns``."""
        self.incidents[alert.incident] = alert
        self.opened_ns.setdefault(alert.incident, now_ns)
        if alert.state != "resolved":
            self.said[alert.incident] = alert
            if self.planted_ns is not None and self.alerted_ns is None and self._is_right(alert):
                self.alerted_ns = now_ns

    def _is_right(self, alert: AlertEvent) -> bool:
        return alert.cause in RIGHT_CAUSES[self.fault] and alert.ranks.tolist() == [self.rank]

    @property
    def warmup_left(self) -> int:
        """Windows that the detector still wants before the fault is planted."""
        return max(0, self.warmup_windows + MARGIN_WINDOWS - self.complete_windows)

    def cue(self, now_ns: int) -> Cue:
        """Return what is to be done at ``now_ns``."""
        if self._seconds(self.started_ns, now_ns) >= self.limit_seconds:
            self.act = Act.END
        match self.act:
            case Act.WARM_UP if self.fault != "none" and self.warmup_left == 0:
                return Cue.PLANT
            case Act.FAULT if self._fault_is_over(now_ns):
                return Cue.STOP
            case Act.RECOVERY if self.incidents and all(a.state == "resolved" for a in self.incidents.values()):
                self.act = Act.END
        return Cue.END if self.act is Act.END else Cue.WAIT

    def _fault_is_over(self, now_ns: int) -> bool:
        if self.alerted_ns is not None and self._seconds(self.alerted_ns, now_ns) >= STAND_SECONDS:
            return True
        return self._seconds(self.planted_ns or now_ns, now_ns) >= FAULT_SECONDS

    def planted(self, now_ns: int) -> None:
        """Take note that the fault holds from now on."""
        self.planted_ns, self.act = now_ns, Act.FAULT

    def stopped(self, now_ns: int) -> None:
        """Take note that the fault is undone."""
        self.stopped_ns, self.act = now_ns, Act.RECOVERY

    def verdict(self) -> Verdict:
        """Judge: right rank and right cause, resolved afterwards, and nothing else raised."""
        if self.windows == 0:
            return Verdict(False, "nothing was seen: no window of the job was closed")
        if self.fault == "none":
            return self._verdict_of_silence()
        if self.planted_ns is None:
            return Verdict(False, f"the warm-up did not end in time ({self.warmup_left} windows were missing)")
        right = [name for name, alert in self.said.items() if self._is_right(alert)]
        others = [alert for name, alert in self.said.items() if name not in right[:1]]
        if self.alerted_ns is None or not right:
            seen = "; ".join(f"{a.cause} at {_ranks(a)}" for a in others) or "no alert"
            wanted = " or ".join(RIGHT_CAUSES[self.fault])
            return Verdict(False, f"wrong: {wanted} at rank {self.rank} was planted, {seen} was raised")
        delay = self._seconds(self.planted_ns, self.alerted_ns)
        named = f"{self.said[right[0]].cause} at rank {self.rank} was named {delay:.1f} s after the fault"
        if others:
            extra = "; ".join(f"{a.cause} at {_ranks(a)}" for a in others)
            return Verdict(False, f"wrong: {named}, but so was {extra}", delay)
        if self.incidents[right[0]].state != "resolved":
            return Verdict(False, f"wrong: {named}, but the incident did not resolve once the fault was gone", delay)
        return Verdict(True, f"right: {named}, and the incident resolved once the fault was gone", delay)

    def _verdict_of_silence(self) -> Verdict:
        if self.said:
            seen = "; ".join(f"{a.cause} at {_ranks(a)}" for a in self.said.values())
            return Verdict(False, f"wrong: nothing was planted, {seen} was raised")
        if self.warmup_left:
            return Verdict(False, f"the warm-up did not end in time ({self.warmup_left} windows were missing)")
        return Verdict(True, f"right: nothing was planted and nothing was raised in {self.windows} windows")

    @staticmethod
    def _seconds(since_ns: int, now_ns: int) -> float:
        return (now_ns - since_ns) / NS_PER_SECOND


def _ranks(alert: AlertEvent) -> str:
    named = alert.ranks.tolist()
    if not named:
        return "no rank in particular"
    return ("rank " if len(named) == 1 else "ranks ") + ", ".join(str(rank) for rank in named)
