"""What a pipeline has done so far, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Statistics:
    """Counts since the pipeline began; ``jobs`` and ``ranks`` are those known now.

    ``ignored`` events are of topics that the pipeline writes itself, ``late`` ones came after their window was closed,
    ``refused`` ones an hour ahead of their job or of an impossible rank (and names of readings, calls of communicators,
    that found no room), ``stale`` ones of a retired incarnation,
    ``duplicates`` were delivered twice, ``unranked`` are of a process of unknown rank; ``lost`` is what producers
    know they missed; ``refits`` are the mixtures'. ``*_seconds`` is the time spent in each room.
    """

    events: int = 0
    ignored: int = 0
    windows: int = 0
    frames: int = 0
    rank_windows: int = 0
    alerts: int = 0
    late: int = 0
    refused: int = 0
    stale: int = 0
    duplicates: int = 0
    unranked: int = 0
    lost: int = 0
    refits: int = 0
    jobs: int = 0
    ranks: int = 0
    join_seconds: float = 0.0
    features_seconds: float = 0.0
    detect_seconds: float = 0.0
    diagnose_seconds: float = 0.0
    alert_seconds: float = 0.0
