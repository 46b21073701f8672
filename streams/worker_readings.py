"""What a worker tells Prometheus of itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from eacgm.metrics import Reading
from eacgm.streams.app import FleetShell
from eacgm.streams.statistics import Statistics

ROOMS = ("join", "features", "detect", "diagnose", "alert")
#: readings of the pipelines' statistics: field, name, meaning
_COUNTED = (
    ("windows", "eacgm_windows", "Windows closed."),
    ("frames", "eacgm_frames", "Frames: closed windows in which ranks were known."),
    ("rank_windows", "eacgm_rank_windows", "Rows of frames."),
    ("late", "eacgm_late_events", "Events that came after their window was closed."),
    ("lost", "eacgm_lost_events", "Events that producers know they missed."),
    ("refused", "eacgm_refused_events", "Events of impossible ranks or an hour ahead of their job."),
    ("duplicates", "eacgm_duplicate_events", "Events delivered twice by their producer."),
    ("unranked", "eacgm_unranked_events", "Events of processes of unknown rank."),
    ("refits", "eacgm_refits", "Mixtures refitted."),
)


def worker_readings(shell: FleetShell) -> Iterator[Reading]:
    """Yield all readings; counters are since the worker began, of jobs taken over since they began."""
    yield Reading("eacgm_messages_read", "Messages read from the input topics.", float(shell.n_messages))
    yield Reading("eacgm_dead_letters", "Messages that could not be read.", float(shell.intake.n_dead))
    yield Reading("eacgm_messages_skipped", "Messages that a snapshot already included.", float(shell.holdings.skipped))
    yield Reading("eacgm_messages_hurried", "Messages that did not wait for a slower topic.", float(shell.n_hurried))
    yield Reading("eacgm_alerts", "Alerts written.", float(shell.outputs.n_alerts))
    yield Reading("eacgm_snapshots", "Snapshots written.", float(shell.n_checkpoints))
    yield Reading("eacgm_snapshot_seconds", "Time spent on snapshots.", shell.checkpoint_seconds)
    yield Reading("eacgm_snapshots_unusable", "Snapshots that could not be used.", float(len(shell.holdings.unusable)))
    yield Reading("eacgm_jobs", "Jobs held.", float(len(shell.holdings)), "gauge")
    yield Reading("eacgm_unacknowledged_messages", "Messages that no snapshot covers yet.", shell.n_open, "gauge")
    lag: dict[tuple[str, ...], float] = {(topic,): float(count) for topic, count in shell.lag().items()}
    yield Reading("eacgm_lag_messages", "Messages on the topic that were not read yet.", lag, "gauge", ("topic",))
    told = _sum([pipeline.statistics() for _, pipeline in list(shell.holdings.pipelines())])
    for field, name, text in _COUNTED:
        yield Reading(name, text, float(getattr(told, field)))
    seconds: dict[tuple[str, ...], float] = {(room,): getattr(told, f"{room}_seconds") for room in ROOMS}
    yield Reading("eacgm_room_seconds", "Time spent in each room.", seconds, "counter", ("room",))


def _sum(parts: list[Statistics]) -> Statistics:
    whole = Statistics()
    for part in parts:
        for entry in fields(Statistics):
            setattr(whole, entry.name, getattr(whole, entry.name) + getattr(part, entry.name))
    return whole
