"""A detection: what the detector makes of one frame; and whom open incidents accuse."""

from __future__ import annotations

from dataclasses import dataclass

from eacgm.events import BoolArray, FloatArray, FrameEvent, IntArray
from eacgm.streams.effects import Effects
from eacgm.streams.silence import Silence


@dataclass(slots=True)
class Detection:
    """What the detector makes of one frame.

    ``active`` says that steps ended, ``over`` that all processes have. ``scores`` and ``p_values`` of shape
    ``(n_ranks,)`` are the mixture's (nats; NaN while it cannot tell). ``unusual`` marks ranks that stood out in most
    of the last windows, ``anomalous`` those that did so at the promised false-alarm rate, for ``streak`` windows in a
    row; ``job_unusual`` is the job against its past. ``effects`` is None in a silence. ``window`` counts the job's
    frames.
    """

    frame: FrameEvent
    columns: dict[str, int]
    window: int
    active: bool
    over: bool
    settled: bool
    warm: bool
    silence: Silence | None
    scores: FloatArray
    p_values: FloatArray
    unusual: BoolArray
    anomalous: BoolArray
    streak: IntArray
    job_score: float
    job_p_value: float
    job_unusual: bool
    job_unusual_windows: int
    effects: Effects | None
    contributions: FloatArray | None
    scored_names: list[str]
    step_typical_seconds: float | None


@dataclass(frozen=True, slots=True)
class Accusation:
    """Whom an open incident blames, and the largest share of a step it has cost so far."""

    ranks: list[int]
    peak_share: float
