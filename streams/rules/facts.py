"""Rules that need no statistics: an XID, a lost GPU, a dead or stopped process, memory that only grows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from eacgm.config import DetectConfig
from eacgm.events import Evidence, FloatArray
from eacgm.streams.catalogue import feature
from eacgm.streams.detect import Detector
from eacgm.streams.detection import Detection
from eacgm.streams.finding import Finding, name_ranks

#: XIDs that the driver's documentation lays to the device, its memory, its bus or its links; others are the program's
HARDWARE_XIDS = frozenset(
    {48, 54, 56, 57, 58, 60, 61, 62, 63, 64, 65, 66, 67, 74, 79, 81, 82, 92, 93, 94, 95, 96, 97, 98, 99,
     110, 119, 120, 121, 122, 123, 125, 140, 143, 144, 145, 146, 147, 148, 149, 150, 155, 156}
)  # fmt: skip
#: exit codes of a process that ended well or was asked to end: minus the signal, or a shell's 128 plus it
ORDERLY_EXITS = (0.0, -2.0, -15.0, 130.0, 143.0)
#: windows after which a sign that is not repeated has passed
SIGN_HOLD_WINDOWS = 60


def _column(detection: Detection, name: str) -> FloatArray | None:
    index = detection.columns.get(name)
    if index is None:
        return None
    values = detection.frame.values[:, index]
    return np.where(np.isnan(values), 0.0, values)


def gpu_hardware(detection: Detection, detector: Detector, config: DetectConfig) -> Iterator[Finding]:
    """Name ranks whose GPU logged a hardware XID, was lost, or counted new uncorrected ECC errors."""
    frame = detection.frame
    for name, words in (
        ("gpu_xid", "logged XID {0:.0f}"),
        ("gpu_lost", "is lost"),
        ("gpu_ecc_errors", "has ECC errors"),
    ):
        values = _column(detection, name)
        if values is None:
            continue
        if name == "gpu_xid":
            hit = np.isin(values.astype(np.int64), list(HARDWARE_XIDS))
        elif name == "gpu_ecc_errors":
            hit = detector.signs.grew(name, frame.values[:, detection.columns[name]])
        else:
            hit = values > 0
        ranks = tuple(frame.ranks[hit].tolist())
        if not ranks:
            continue
        value = float(values[hit][0])
        yield Finding(
            cause="gpu_hardware",
            layer="gpu",
            ranks=ranks,
            severity="critical",
            summary=f"The GPU of {name_ranks(ranks)} {words.format(value)}: hardware fault.",
            started_ns=frame.start_ns,
            evidence=tuple(
                Evidence(name, int(r), float(v), 0.0, feature(name).unit, 1.0)
                for r, v in zip(ranks, values[hit], strict=True)
            ),
            hold_windows=SIGN_HOLD_WINDOWS,
        )


def crash(detection: Detection, detector: Detector, config: DetectConfig) -> Iterator[Finding]:
    """Name ranks that ended with an error, or vanished while the others stopped making progress."""
    frame = detection.frame
    exited, code = _column(detection, "exited"), _column(detection, "exit_code")
    if exited is not None and code is not None:
        # whoever asks a job to end (Ctrl-C, a scheduler) is no fault of the job
        bad = (exited > 0) & ~np.isin(code, ORDERLY_EXITS)
        if bad.any():
            ranks = tuple(frame.ranks[bad].tolist())
            how = f"killed by signal {-code[bad][0]:.0f}" if code[bad][0] < 0 else f"exit code {code[bad][0]:.0f}"
            yield _crash(detection, ranks, f"The process of {name_ranks(ranks)} ended ({how}).", "exit_code", code[bad])
            return
    silence = detection.silence
    if silence is None or silence.kind != "dead" or silence.windows < 4 or not detector.silences.started:
        return
    gone = silence.missing
    if gone.all() or not gone.any():
        return
    ranks = tuple(frame.ranks[gone].tolist())
    yield _crash(
        detection, ranks, f"The process of {name_ranks(ranks)} is gone and the others wait for it.", "exited", gone
    )


def _crash(detection: Detection, ranks: tuple[int, ...], summary: str, name: str, values: FloatArray) -> Finding:
    return Finding(
        cause="crash",
        layer="host",
        ranks=ranks,
        severity="critical",
        summary=summary,
        started_ns=detection.silence.started_ns if detection.silence else detection.frame.start_ns,
        evidence=tuple(
            Evidence(name, r, float(v), 0.0, feature(name).unit, 1.0) for r, v in zip(ranks, values, strict=False)
        ),
        hold_windows=SIGN_HOLD_WINDOWS,
    )


def stopped(detection: Detection, detector: Detector, config: DetectConfig) -> Iterator[Finding]:
    """Name ranks whose process has been stopped (a signal or a tracer) for whole windows: everyone hangs on them."""
    values = _column(detection, "stopped_ratio")
    if values is None or detection.silence is None:
        return
    hit = values > 0.8
    if detection.silence.windows < 2 or not hit.any():
        return
    ranks = tuple(detection.frame.ranks[hit].tolist())
    yield Finding(
        cause="hang",
        layer="host",
        ranks=ranks,
        severity="critical",
        summary=f"The job hangs: the process of {name_ranks(ranks)} is stopped and the others wait for it.",
        started_ns=detection.silence.started_ns,
        evidence=tuple(
            Evidence("stopped_ratio", r, float(v), 0.0, "ratio", 1.0) for r, v in zip(ranks, values[hit], strict=True)
        ),
    )


def gpu_memory(detection: Detection, detector: Detector, config: DetectConfig) -> Iterator[Finding]:
    """Name a leak: device memory that grew through every part of the last minutes and does not level off."""
    growing = detector.memory.growing()
    if len(growing) != len(detection.frame.ranks) or not growing.any():
        return
    first, last = detector.memory.span()
    everyone = bool(growing.all())
    ranks = () if everyone else tuple(detection.frame.ranks[growing].tolist())
    who = "every rank" if everyone else name_ranks(ranks)
    grew = float(np.median((last - first)[growing]))
    evidence = tuple(
        Evidence(detector.memory.name, int(r), float(b), float(a), "bytes", 1.0)
        for r, a, b in zip(detection.frame.ranks[growing], first[growing], last[growing], strict=True)
    )
    yield Finding(
        cause="gpu_memory",
        layer="gpu",
        ranks=ranks,
        severity="warning",
        summary=f"Device memory of {who} only grows: {grew / 1e6:,.0f} MB in the last minutes. It looks like a leak.",
        started_ns=detection.frame.start_ns,
        evidence=evidence[:16],
        hold_windows=SIGN_HOLD_WINDOWS,
    )
