"""The rule for what cannot be seen: telemetry that is lost is a verdict of its own, never health."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from eacgm.config import DetectConfig
from eacgm.events import Evidence
from eacgm.streams.detect import Detector
from eacgm.streams.detection import Detection
from eacgm.streams.finding import Finding, name_ranks

#: windows in a row that a rank must be unseen while the job goes on
MIN_WINDOWS = 8


def telemetry_lost(detection: Detection, detector: Detector, config: DetectConfig) -> Iterator[Finding]:
    """Name ranks of which nothing arrives although the job makes progress, so that they cannot be dead."""
    frame = detection.frame
    unseen = detector.signs.unseen_windows
    if detection.silence is not None and not (unseen >= MIN_WINDOWS).all():
        return
    lost = unseen >= MIN_WINDOWS
    if not lost.any():
        return
    everyone = bool(lost.all())
    ranks = () if everyone else tuple(frame.ranks[lost].tolist())
    who = "any rank" if everyone else name_ranks(ranks)
    nodes = sorted({node for node, gone in zip(frame.nodes, lost.tolist(), strict=True) if gone and node})
    where = f" (node {', '.join(nodes)})" if nodes and not everyone else ""
    yield Finding(
        cause="telemetry_lost",
        layer="telemetry",
        ranks=ranks,
        severity="warning",
        summary=f"Nothing is seen of {who}{where} for {int(unseen.max())} windows: this is blindness, not health.",
        started_ns=frame.start_ns,
        evidence=(Evidence("coverage", None, float(np.mean(frame.present)), 1.0, "ratio", 1.0),),
    )
