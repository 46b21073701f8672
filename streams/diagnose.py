"""Detections to findings: who, which layer, why. One rule per kind of fault, asked in the order of certainty.

Facts come first (an XID, a dead or stopped process, a silence of a known kind), then the straggler: the rank whose own
work grew while it waits least for its peers, with the part of its work that grew as the cause; then what everyone
suffers; then what no rule explains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from eacgm.config import DetectConfig
from eacgm.streams.detect import Detector
from eacgm.streams.detection import Detection
from eacgm.streams.finding import Finding
from eacgm.streams.rules import facts, job, silent, straggler, unseen

#: cause -> what follows from it, and is therefore part of the same incident
CONSEQUENCES: dict[str, tuple[str, ...]] = {
    "gpu_hardware": (
        "crash", "hang", "slow_compute", "gpu_throttle", "pcie", "network", "job_slowdown", "telemetry_lost", "unknown",
        "data_stall", "checkpoint_stall",
    ),
    "crash": ("crash", "hang", "telemetry_lost", "job_slowdown", "network", "unknown", "data_stall",
              "checkpoint_stall"),
    "hang": ("job_slowdown", "network", "unknown", "crash", "telemetry_lost", "slow_compute", "data_stall",
             "host_contention", "gc_pause"),
    "gpu_memory": ("crash", "unknown", "job_slowdown"),
    "checkpoint_stall": ("job_slowdown", "unknown", "network", "slow_compute"),
    "data_stall": ("job_slowdown", "unknown", "network", "slow_compute", "host_contention"),
    "gc_pause": ("job_slowdown", "network", "unknown", "slow_compute"),
    "gpu_throttle": ("slow_compute", "job_slowdown", "network", "unknown"),
    "pcie": ("slow_compute", "job_slowdown", "network", "unknown"),
    "host_contention": ("job_slowdown", "network", "unknown"),
    "slow_compute": ("job_slowdown", "network", "unknown"),
    "network": ("job_slowdown", "unknown"),
    "job_slowdown": ("unknown",),
}  # fmt: skip

Rule = Callable[[Detection, Detector, DetectConfig], Iterator[Finding]]

#: the rules in the order of certainty; the first that speaks about a fault has the word
RULES: tuple[Rule, ...] = (
    facts.gpu_hardware,
    facts.crash,
    facts.stopped,
    unseen.telemetry_lost,
    silent.checkpoint_stall,
    silent.data_stall,
    silent.hang,
    facts.gpu_memory,
    straggler.pauses,
    straggler.straggler,
    job.network,
    job.job_slowdown,
    job.unknown,
)


def diagnose(detection: Detection, detector: Detector) -> list[Finding]:
    """Return what the rules say of a detection, most certain first; what follows from an earlier one is left out."""
    findings: list[Finding] = []
    for rule in RULES:
        for finding in rule(detection, detector, detector.config.detect):
            if not any(finding.cause in CONSEQUENCES.get(known.cause, ()) for known in findings):
                findings.append(finding)
    return findings
