"""Rules for a job that makes no progress: hang, checkpoint stall, data stall."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from eacgm.config import DetectConfig
from eacgm.events import Evidence
from eacgm.streams.baseline import middle
from eacgm.streams.catalogue import feature
from eacgm.streams.detect import Detector
from eacgm.streams.detection import Detection
from eacgm.streams.finding import Finding, name_ranks
from eacgm.streams.silence import ABSENT, CHECKPOINT, DATA, IDLE, Silence

#: a checkpoint is stalled after this many times its usual length, or after so many seconds if none was seen yet
CHECKPOINT_RATIO = 3.0
CHECKPOINT_SLACK_SECONDS = 15.0
FIRST_CHECKPOINT_SECONDS = 120.0
#: a wait for data shorter than this is a hiccup (seconds)
DATA_SECONDS = 10.0
#: nobody moves, nobody is to blame: only after this long (seconds)
LEADERLESS_HANG_SECONDS = 60.0
#: a silence shorter than this many usual steps is a slow step
HANG_STEPS = 8.0
#: how much longer than the longest silence that ended by itself
PAST_RATIO = 2.0


def checkpoint_stall(detection: Detection, detector: Detector, config: DetectConfig) -> Iterator[Finding]:
    """Tell a save that takes far longer than this job's saves usually do, while it still trickles."""
    silence = detection.silence
    if silence is None or detector.silences.prevailing != CHECKPOINT:
        return
    usual = detector.silences.typical(CHECKPOINT)
    limit = FIRST_CHECKPOINT_SECONDS
    if usual is not None:
        limit = max(CHECKPOINT_RATIO * usual, usual + CHECKPOINT_SLACK_SECONDS)
    if silence.seconds < limit:
        return
    ranks = tuple(detection.frame.ranks[silence.writers].tolist())
    expected = "" if usual is None else f" instead of {usual:.0f} s"
    yield Finding(
        cause="checkpoint_stall",
        layer="storage",
        ranks=ranks,
        severity="warning",
        summary=f"Saving a checkpoint takes {silence.seconds:.0f} s{expected}; {name_ranks(ranks)} still writes.",
        started_ns=silence.started_ns,
        evidence=(Evidence("checkpoint_seconds", None, silence.seconds, usual, "seconds", 1.0),),
    )


def data_stall(detection: Detection, detector: Detector, config: DetectConfig) -> Iterator[Finding]:
    """Tell a job in which everyone waits for input: devices idle, no collective half entered, I/O pending."""
    silence = detection.silence
    if (
        silence is None
        or detector.silences.prevailing != DATA
        or silence.seconds < max(DATA_SECONDS, _limit(detection, detector, DATA, config))
    ):
        return
    waiting = detection.frame.values[:, detection.columns["io_wait_seconds"]]
    yield Finding(
        cause="data_stall",
        layer="storage",
        ranks=(),
        severity="warning",
        summary=f"No step for {silence.seconds:.0f} s: all ranks wait for data, none for its peers.",
        started_ns=silence.started_ns,
        evidence=(Evidence("io_wait_seconds", None, float(middle(waiting)), 0.0, "seconds", 1.0),),
        hold_windows=60,
    )


def hang(detection: Detection, detector: Detector, config: DetectConfig) -> Iterator[Finding]:
    """Tell a hang, with who is missing from the collective that the others wait in."""
    silence = detection.silence
    if silence is None or not detector.silences.started:
        return
    kind = detector.silences.prevailing
    limit = _limit(detection, detector, kind, config)
    if kind == ABSENT and silence.missing.any():
        if silence.seconds >= limit:
            yield _hang(detection, silence, tuple(detection.frame.ranks[silence.missing].tolist()))
    elif kind in (IDLE, ABSENT) and silence.seconds >= max(LEADERLESS_HANG_SECONDS, limit):
        yield _hang(detection, silence, ())


def _hang(detection: Detection, silence: Silence, ranks: tuple[int, ...]) -> Finding:
    if ranks:
        summary = (
            f"The job hangs for {silence.seconds:.0f} s: {name_ranks(ranks)} never entered the collective "
            "that the others wait in."
        )
    else:
        summary = f"The job hangs: no step on any rank for {silence.seconds:.0f} s, and no rank stands out."
    frame, columns = detection.frame, detection.columns
    evidence = []
    for name in ("collective_open_seconds", "collective_count", "gpu_power_watts"):
        if name in columns and ranks:
            column = frame.values[:, columns[name]]
            others = float(middle(column))
            mine = column[np.isin(frame.ranks, ranks)]
            evidence.append(Evidence(name, ranks[0], float(mine[0]), others, feature(name).unit, 0.0))
    evidence.append(Evidence("silence_seconds", None, silence.seconds, detection.step_typical_seconds, "seconds", 1.0))
    return Finding(
        cause="hang",
        layer="collective",
        ranks=ranks,
        severity="critical",
        summary=summary,
        started_ns=silence.started_ns,
        evidence=tuple(evidence),
    )


def _limit(detection: Detection, detector: Detector, kind: str, config: DetectConfig) -> float:
    """Return how long a silence of this kind must last before it is told (seconds)."""
    usual = detection.step_typical_seconds or 1.0
    return max(config.hang_seconds, HANG_STEPS * usual, PAST_RATIO * detector.silences.longest(kind))
