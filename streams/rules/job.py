"""Rules for what everyone suffers: the network, a slowdown without a culprit, and what no rule explains."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from eacgm.config import DetectConfig
from eacgm.events import Evidence
from eacgm.streams.baseline import middle
from eacgm.streams.catalogue import feature
from eacgm.streams.detect import Detector
from eacgm.streams.detection import Detection
from eacgm.streams.effects import Effects
from eacgm.streams.finding import Finding, name_ranks
from eacgm.streams.rules.straggler import evidence_of

#: collectives that take this many times as long are a network's matter if nobody comes late
COLLECTIVE_RATIO = 1.3
#: and cost at least this share of the usual step
MIN_STEP_SHARE = 0.05
#: a step that takes this many times as long, on every rank alike
SLOWDOWN_RATIO = 1.15
#: what can slow everyone alike
EVERYONES = ("job_slowdown", "gpu_throttle", "data_stall", "gc_pause", "host_contention")
#: windows of being unlike its past before the job as a whole is called slow
SLOWDOWN_WINDOWS = 20
#: spreads about the job's past below which it is as usual
MIN_JOB_Z = 4.0
#: windows of being unlike its past before slow collectives are told
NETWORK_WINDOWS = 6
#: a rank whose collectives are shorter than this share of what its peers suggest, by so many spreads, comes late
LATE_RATIO = 0.6
LATE_Z = 2.0
#: a median clock below this share of its usual is throttling
THROTTLED_RATIO = 0.95
#: per-step amounts of work that grew by so much explain a longer step
WORK_RATIO = 1.05
#: windows that a rank must be unlike its peers before an unexplained anomaly is told
UNKNOWN_WINDOWS = 20
#: a round trip longer, or retransmits more, than the peers' by this ratio over a while names the path
RTT_RATIO = 1.12
RETRANSMIT_RATIO = 2.0
MIN_DRIFT_Z = 5.0


def network(detection: Detection, detector: Detector, config: DetectConfig) -> Iterator[Finding]:
    """Tell collectives that became slow for everyone though no rank comes late; the round trips tell whose path."""
    effects = detection.effects
    if effects is None or not detection.warm:
        return
    known = "network" in detector.accused
    if not known and (not detection.job_unusual or detection.job_unusual_windows < NETWORK_WINDOWS):
        return
    if not _slow_collectives(effects, 0.5 if known else 1.0):
        return
    if _work_grew(effects, detector) or _someone_is_late(effects):
        return
    members = _slow_paths(effects)
    ranks = tuple(int(detection.frame.ranks[m]) for m in members)
    ratio = effects.change("collective_seconds") or 1.0
    whose = f"the path of {name_ranks(ranks)}" if ranks else "the network"
    evidence = [
        Evidence(
            "collective_seconds", None, (effects.past("collective_seconds") or 0.0) * ratio,
            effects.past("collective_seconds"), "seconds", 1.0,
        )
    ]  # fmt: skip
    evidence += evidence_of(detection, effects, members, habit=True) if members else []
    yield Finding(
        cause="network",
        layer="network",
        ranks=ranks,
        severity="warning",
        summary=f"Collectives take {ratio:.1f} times as long on every rank though none comes late: {whose} is slow.",
        started_ns=detection.frame.start_ns - int(2 * effects.window_seconds * 1e9),
        score=_finite(detection.job_score),
        p_value=_finite(detection.job_p_value),
        evidence=tuple(evidence),
        needs_steps=True,
    )


def _slow_collectives(effects: Effects, strictness: float) -> bool:
    ratio, z, usual = (
        effects.change("collective_seconds"),
        effects.change_z("collective_seconds"),
        effects.past("collective_seconds"),
    )
    step = effects.past("step_seconds")
    if ratio is None or z is None or usual is None:
        return False
    costs = step is None or (ratio - 1.0) * usual >= strictness * MIN_STEP_SHARE * step
    computing = effects.change("compute_seconds")
    slow = ratio >= 1.0 + strictness * (COLLECTIVE_RATIO - 1.0) and z >= strictness * MIN_JOB_Z
    return slow and costs and (computing is None or computing < SLOWDOWN_RATIO)


def _someone_is_late(effects: Effects) -> bool:
    """Tell whether a rank waits far less than it used to: then the others wait for it, not for the network."""
    level, expected, z = (
        effects.level("collective_seconds"),
        effects.expected("collective_seconds"),
        effects.z("collective_seconds"),
    )
    if level is None or expected is None or z is None:
        return False
    return bool(np.any((level < LATE_RATIO * expected) & (z < -LATE_Z)))


def _slow_paths(effects: Effects) -> list[int]:
    """Return the positions of ranks whose round trip or retransmits stand out among their peers."""
    members: list[int] = []
    for name, least in (("net_rtt_seconds", np.log(RTT_RATIO)), ("net_retransmits", np.log(RETRANSMIT_RATIO))):
        drift = effects.drift(name)
        if drift is not None and not members:
            size, spreads = drift
            # every path scatters: only those that stand clear of the next count
            members = np.flatnonzero((size > least) & (spreads > MIN_DRIFT_Z)).tolist()
    return members if len(members) * 2 <= effects.n_ranks else []


def _work_grew(effects: Effects, detector: Detector) -> bool:
    """Tell whether the job does more per step than it did: then a longer step is no fault."""
    if any(ratio > WORK_RATIO for ratio in detector.work.ratios().values()):
        return True
    memory = effects.change("gpu_memory_used_bytes")
    return memory is not None and memory > WORK_RATIO


def job_slowdown(detection: Detection, detector: Detector, config: DetectConfig) -> Iterator[Finding]:
    """Tell a step that became longer on every rank alike, unless the work itself grew: that is adopted."""
    effects = detection.effects
    if effects is None or not detection.warm or detection.job_unusual_windows < SLOWDOWN_WINDOWS:
        return
    known = any(cause in detector.accused and not detector.accused[cause].ranks for cause in EVERYONES)
    if detector.accused and not known:
        # what slows the job is already told
        return
    ratio, z, usual = effects.change("step_seconds"), effects.change_z("step_seconds"), effects.past("step_seconds")
    if ratio is None or z is None or usual is None:
        return
    if _work_grew(effects, detector):
        detector.adopt_job()
        return
    strictness = 0.5 if known else 1.0
    if ratio < 1.0 + strictness * (SLOWDOWN_RATIO - 1.0) or z < strictness * MIN_JOB_Z:
        if detection.job_unusual_windows >= 3 * SLOWDOWN_WINDOWS:
            # unlike its past, but no slower: the new usual
            detector.adopt_job()
        return
    cause, layer, why = _why_everyone(effects, (ratio - 1.0) * usual)
    yield Finding(
        cause=cause,
        layer=layer,
        ranks=(),
        severity="warning",
        summary=f"Every step takes {ratio:.2f} times as long as before on all ranks alike; {why}.",
        started_ns=detection.frame.start_ns - detection.job_unusual_windows * int(effects.window_seconds * 1e9),
        score=_finite(detection.job_score),
        p_value=_finite(detection.job_p_value),
        evidence=(Evidence("step_seconds", None, usual * ratio, usual, "seconds", 1.0),),
        needs_steps=True,
    )


def _why_everyone(effects: Effects, excess_seconds: float) -> tuple[str, str, str]:
    """Return cause, layer and words for a step that grew by ``excess_seconds`` on every rank."""
    clock = effects.change("gpu_sm_clock_hertz")
    if clock is not None and clock < THROTTLED_RATIO:
        return "gpu_throttle", "gpu", f"all GPUs run at {clock:.0%} of their usual clock"
    for name, per_window, cause, layer, why in (
        ("data_wait_seconds", False, "data_stall", "python", "all wait for data"),
        ("gc_seconds", True, "gc_pause", "python", "all spend it in garbage collection"),
        ("run_queue_wait_seconds", True, "host_contention", "host", "all wait for a CPU that others use"),
    ):
        ratio, usual, steps = effects.change(name), effects.past(name), effects.steps_per_window()
        if ratio is None or usual is None or steps is None:
            continue
        seconds = (ratio - 1.0) * usual / (float(middle(steps)) if per_window else 1.0)
        if seconds > 0.5 * excess_seconds:
            return cause, layer, why
    return "job_slowdown", "pytorch", "nobody holds up the others"


def unknown(detection: Detection, detector: Detector, config: DetectConfig) -> Iterator[Finding]:
    """Tell a rank that stays unlike its peers while the job is slower, though no rule says why."""
    effects = detection.effects
    if effects is None or not detection.warm or not detection.anomalous.any():
        return
    slower = effects.change("step_seconds")
    if slower is not None and slower < 1.0 + MIN_STEP_SHARE:
        return
    long_enough = detection.streak >= UNKNOWN_WINDOWS
    positions = np.flatnonzero(long_enough)
    if not len(positions) or len(positions) * 2 > effects.n_ranks:
        return
    ranks = tuple(int(detection.frame.ranks[p]) for p in positions)
    shares = detection.contributions
    top = ""
    evidence: list[Evidence] = []
    if shares is not None:
        first = int(positions[0])
        order = np.argsort(-shares[first])[:3]
        for column in order:
            name = detection.scored_names[int(column)]
            level, expected = effects.level(name), effects.expected(name)
            if level is not None and expected is not None:
                evidence.append(
                    Evidence(
                        name,
                        ranks[0],
                        float(level[first]),
                        float(expected[first]),
                        feature(name).unit,
                        float(shares[first, column]),
                    )
                )
        top = " (" + ", ".join(item.feature for item in evidence) + ")" if evidence else ""
    yield Finding(
        cause="unknown",
        layer=feature(evidence[0].feature).layer if evidence else "other",
        ranks=ranks,
        severity="info",
        summary=(
            f"{name_ranks(ranks).capitalize()} behaves unlike its peers{top} while the job is slower; "
            "no known pattern fits."
        ),
        started_ns=detection.frame.start_ns - UNKNOWN_WINDOWS * int(effects.window_seconds * 1e9),
        score=_finite(float(np.fmax.reduce(detection.scores[positions]))),
        p_value=_finite(float(np.fmin.reduce(detection.p_values[positions]))),
        evidence=tuple(evidence),
        needs_steps=True,
    )


def _finite(value: float) -> float:
    return value if np.isfinite(value) else 0.0
