"""The straggler: the rank whose own work grew, who waits least for its peers; what grew is the cause.

In a synchronous job everyone's step is as long as the slowest rank's. Waiting shows with the victims, so the longest
collective is nobody's fault; the culprit is the rank with more work of its own, and it arrives last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eacgm.config import DetectConfig
from eacgm.events import BoolArray, Evidence, FloatArray
from eacgm.streams.baseline import middle
from eacgm.streams.catalogue import feature
from eacgm.streams.detect import Detector
from eacgm.streams.detection import Detection
from eacgm.streams.effects import Effects
from eacgm.streams.finding import Finding, name_ranks

#: own work: (feature, is it per window and must be put on a step, cause when it grew)
OWN_WORK = (
    ("compute_seconds", False, "slow_compute"),
    ("data_wait_seconds", False, "data_stall"),
    ("cuda_memcpy_seconds", True, "pcie"),
    ("gc_seconds", True, "gc_pause"),
)
#: extra work that is worth telling (share of the usual step), against the rank's own habit and against peers alone
MIN_SHARE = 0.05
MIN_STANDING_SHARE = 0.2
#: what is left of the worst when a straggler has recovered
OVER_SHARE = 0.25
#: effects below so many spreads are noise
MIN_Z = 4.0
#: spreads about the peers' median that a standing difference must reach
MIN_STANDING_Z = 6.0
#: windows a standing difference must be seen, counted from settling
MIN_STANDING_WINDOWS = 12
STANDING_EVERY = 3
#: lost to pauses: share of the time since the first, seconds, and separate windows
PAUSE_SHARE = 0.008
PAUSE_OCCURRENCES = 3
DATA_PAUSE_SECONDS = 5.0
#: pauses in more than half of so many windows are a state, not pauses
DENSE_WINDOWS = 8
#: windows after the last pause in which more are to be feared
PAUSE_MEMORY_WINDOWS = 60
DATA_PAUSE_SHARE = 0.03

_FEATURE_OF = {
    "slow_compute": "compute_seconds",
    "gpu_throttle": "compute_seconds",
    "host_contention": "compute_seconds",
    "data_stall": "data_wait_seconds",
    "pcie": "cuda_memcpy_seconds",
    "gc_pause": "gc_seconds",
}
CAUSES = tuple(_FEATURE_OF)
_LAYER = {
    "slow_compute": "pytorch",
    "data_stall": "python",
    "pcie": "gpu",
    "gc_pause": "python",
    "gpu_throttle": "gpu",
    "host_contention": "host",
}
_WORDS = {
    "slow_compute": "computes more slowly than its peers",
    "data_stall": "waits for its data",
    "pcie": "copies to and from its GPU more slowly than its peers",
    "gc_pause": "spends its time in garbage collection",
    "gpu_throttle": "runs on a throttled GPU",
    "host_contention": "waits for a CPU that others use",
}


@dataclass(slots=True)
class Suspicion:
    """Extra seconds per step of each rank and kind of work: ``parts[cause]`` of shape ``(n_ranks,)``."""

    parts: dict[str, FloatArray]
    z: FloatArray
    total: FloatArray
    step_seconds: float


def straggler(detection: Detection, detector: Detector, config: DetectConfig) -> Iterator[Finding]:
    """Name ranks whose own work exceeds their peers', by habit broken or from the first step."""
    effects = detection.effects
    if effects is None:
        return
    known = detector.is_accused(detection, CAUSES)
    asked = detection.warm and bool((detection.unusual | known).any())
    suspicion = _suspect(effects, habit=True) if asked else None
    if suspicion is not None:
        peak = max((one.peak_share for cause, one in detector.accused.items() if cause in CAUSES), default=0.0)
        least = np.where(known, max(0.5 * MIN_SHARE, OVER_SHARE * peak), MIN_SHARE) * suspicion.step_seconds
        guilty = (detection.unusual | known) & (suspicion.z >= np.where(known, 0.5, 1.0) * MIN_Z)
        guilty &= suspicion.total >= least
        if guilty.any():
            yield from _accuse(detection, effects, suspicion, guilty, habit=True)
            return
    # what has stood from the start need not be asked for in every window
    if detector.settling.windows >= MIN_STANDING_WINDOWS and detector.settling.windows % STANDING_EVERY == 0:
        suspicion = _suspect(effects, habit=False)
        if suspicion is not None:
            guilty = (suspicion.z >= MIN_STANDING_Z) & (
                suspicion.total >= MIN_STANDING_SHARE * (suspicion.step_seconds - suspicion.total)
            )
            guilty &= _waits_least(effects, guilty)
            if guilty.any():
                yield from _accuse(detection, effects, suspicion, guilty, habit=False)


def _suspect(effects: Effects, *, habit: bool) -> Suspicion | None:
    step = effects.level("step_seconds")
    if step is None:
        return None
    parts: dict[str, FloatArray] = {}
    z = np.full(effects.n_ranks, -np.inf)
    best = np.full(effects.n_ranks, -np.inf)
    for name, per_window, cause in OWN_WORK:
        excess, spreads = effects.excess(name, habit=habit), effects.z(name, habit=habit)
        if excess is None or spreads is None:
            continue
        seconds = effects.per_step(excess) if per_window else excess
        if seconds is None:
            continue
        part = np.where(np.isnan(seconds), 0.0, seconds)
        parts[cause] = part
        z = np.where(part > best, np.where(np.isnan(spreads), -np.inf, spreads), z)
        best = np.maximum(best, part)
    if not parts:
        return None
    usual = effects.past("step_seconds") if habit else None
    typical = usual if usual is not None else float(middle(step))
    total = np.sum([np.maximum(part, 0.0) for part in parts.values()], axis=0)
    return Suspicion(parts, z, total, typical)


def _waits_least(effects: Effects, guilty: BoolArray) -> BoolArray:
    """Confirm suspects by the waiting: their collectives must be shorter than the peers', where told."""
    level, expected = effects.level("collective_seconds"), effects.expected("collective_seconds", habit=False)
    if level is None or expected is None:
        return guilty
    return np.asarray(~(level > 0.8 * expected))


def _accuse(
    detection: Detection, effects: Effects, suspicion: Suspicion, guilty: BoolArray, *, habit: bool
) -> Iterator[Finding]:
    # whoever has less than half of the worst one's excess is carried along by it
    worst = float(suspicion.total[guilty].max())
    guilty = guilty & (suspicion.total >= 0.5 * worst)
    by_cause: dict[str, list[int]] = {}
    for position in np.flatnonzero(guilty).tolist():
        cause = max(suspicion.parts, key=lambda name: suspicion.parts[name][position])
        if cause == "slow_compute":
            cause = _why_slow(effects, position, float(suspicion.parts[cause][position]), habit=habit)
        by_cause.setdefault(cause, []).append(position)
    if len(by_cause.get("host_contention", ())) >= len(by_cause.get("slow_compute", ())) > 0:
        # neighbours that slow down together do so for the same reason, even where one's waiting is less clear
        by_cause["host_contention"] = sorted(by_cause["host_contention"] + by_cause.pop("slow_compute"))
    for cause, members in by_cause.items():
        yield _finding(detection, effects, suspicion, cause, members, habit=habit)


def _is_habit(effects: Effects, cause: str, members: list[int]) -> bool:
    """Tell whether ranks have always been like this: most of the distance from their peers is their habit."""
    name = _FEATURE_OF[cause]
    with_habit, without = effects.z(name), effects.z(name, habit=False)
    return with_habit is not None and without is not None and bool(np.all(with_habit[members] < 0.5 * without[members]))


def _why_slow(effects: Effects, position: int, seconds: float, *, habit: bool) -> str:
    """Refine slow computing: a clock below the peers', a stopped or throttled process, or a CPU that others use."""
    clock = effects.level("gpu_sm_clock_hertz")
    expected = effects.expected("gpu_sm_clock_hertz", habit=habit)
    if clock is not None and expected is not None and clock[position] < 0.96 * expected[position]:
        return "gpu_throttle"
    for name in ("throttled_seconds", "stopped_ratio"):
        level = effects.level(name)
        if level is not None and level[position] > 0.05:
            # its own quota, not its neighbours, keeps it from the CPU
            return "slow_compute"
    waiting = effects.per_step(effects.excess("run_queue_wait_seconds", habit=habit))
    if waiting is not None and waiting[position] > 0.5 * seconds:
        return "host_contention"
    return "slow_compute"


def _finding(
    detection: Detection, effects: Effects, suspicion: Suspicion, cause: str, members: list[int], *, habit: bool
) -> Finding:
    frame = detection.frame
    ranks = tuple(int(frame.ranks[m]) for m in members)
    lost = float(np.mean(suspicion.total[members])) / suspicion.step_seconds
    since = " since its first step" if not habit and _is_habit(effects, cause, members) else ""
    summary = f"{name_ranks(ranks).capitalize()} {_WORDS[cause]}{since} and holds up every step by {lost:.0%}."
    if len(ranks) > 1:
        summary = summary.replace(" computes ", " compute ").replace(" waits ", " wait ").replace(" holds ", " hold ")
        summary = (
            summary.replace(" copies ", " copy ").replace(" spends its ", " spend their ").replace(" runs ", " run ")
        )
    scores = detection.scores[members]
    return Finding(
        cause=cause,
        layer=_LAYER[cause],
        ranks=ranks,
        severity="critical" if lost > 0.3 else "warning",
        summary=summary,
        started_ns=frame.start_ns - int(2 * effects.window_seconds * 1e9),
        score=_finite(np.fmax.reduce(scores)),
        p_value=_finite(np.fmin.reduce(detection.p_values[members])),
        evidence=evidence_of(detection, effects, members, habit=habit),
        share=lost,
        needs_steps=True,
    )


#: readings closer than this to what was expected are no evidence
MIN_SHOWN_Z = 3.0
#: features worth showing beside a straggler, most telling first
_SHOWN = (
    "compute_seconds", "data_wait_seconds", "cuda_memcpy_seconds", "gc_seconds", "collective_seconds",
    "collective_lag_seconds", "gpu_sm_clock_hertz", "gpu_power_watts", "throttled_seconds", "stopped_ratio",
    "run_queue_wait_seconds", "cpu_seconds", "net_rtt_seconds", "net_retransmits",
)  # fmt: skip


def evidence_of(detection: Detection, effects: Effects, members: list[int], *, habit: bool) -> tuple[Evidence, ...]:
    """Return the readings of the named positions that moved most, with what was expected and the mixture's share."""
    found = []
    shares = (
        {}
        if detection.contributions is None
        else dict(zip(detection.scored_names, detection.contributions[members[0]].tolist(), strict=False))
    )
    for name in _SHOWN:
        level, expected, z = effects.level(name), effects.expected(name, habit=habit), effects.z(name, habit=habit)
        if level is None or expected is None or z is None:
            continue
        unit, share = feature(name).unit, float(shares.get(name, 0.0))
        found += [
            Evidence(name, int(detection.frame.ranks[m]), float(level[m]), float(expected[m]), unit, share)
            for m in members[:4]
            if abs(z[m]) >= MIN_SHOWN_Z and np.isfinite(level[m])
        ]
    return tuple(found[:12])


def pauses(detection: Detection, detector: Detector, config: DetectConfig) -> Iterator[Finding]:
    """Tell pauses that cost a synchronous job its time, although no rank is at fault for long."""
    if detection.silence is not None or not detector.settling.windows:
        return
    for name, cause, words in (
        ("gc_seconds", "gc_pause", "Garbage collection"),
        ("data_wait_seconds", "data_stall", "Waiting for data"),
    ):
        loss = detector.pauses[name].loss()
        if loss is None or detection.window - loss.last_window > PAUSE_MEMORY_WINDOWS:
            continue
        if 2 * loss.occurrences > loss.last_window - loss.first_window + DENSE_WINDOWS and _few(loss.ranks, detection):
            # one rank that waits in every window is a straggler, not a pause
            continue
        span_windows = max(detection.window - loss.first_window, 30)
        share = loss.seconds / span_windows
        # a loader hiccups now and then everywhere; a collector that stops the world again and again is a habit
        often = cause == "gc_pause" and loss.occurrences >= PAUSE_OCCURRENCES and share >= PAUSE_SHARE
        long = cause == "data_stall" and loss.seconds >= DATA_PAUSE_SECONDS and share >= DATA_PAUSE_SHARE
        if not often and not long:
            continue
        yield Finding(
            cause=cause,
            layer="python",
            ranks=(),
            severity="warning",
            summary=(
                f"{words} stopped the job {loss.occurrences} times in {span_windows} windows: "
                f"{loss.seconds:.1f} s lost ({share:.1%}), on {len(loss.ranks)} rank(s) by turns."
            ),
            started_ns=detection.frame.start_ns - (detection.window - loss.first_window) * _window_ns(detection),
            evidence=(Evidence(name, None, loss.seconds, 0.0, "seconds", 1.0),),
            hold_windows=30,
        )


def _few(ranks: tuple[int, ...], detection: Detection) -> bool:
    return 2 * len(ranks) <= len(detection.frame.ranks)


def _finite(value: float) -> float:
    return float(value) if np.isfinite(value) else 0.0


def _window_ns(detection: Detection) -> int:
    return detection.frame.end_ns - detection.frame.start_ns
