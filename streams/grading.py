"""Incidents held against what is known to have happened: precision, recall, delay. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eacgm.streams.comparison import Incident


@dataclass(frozen=True, slots=True)
class Label:
    """A fault that is known to have happened; times are UTC ns, ``ended_ns`` None where it never ended.

    ``job`` and ``cause`` None, and ``ranks`` empty, fit every incident: whoever labels may not know.
    """

    started_ns: int
    ended_ns: int | None = None
    job: str | None = None
    cause: str | None = None
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Graded:
    """A label, and the incident that found it first (None: nobody did)."""

    label: Label
    incident: Incident | None

    @property
    def delay_seconds(self) -> float | None:
        """Seconds from the fault's beginning to its detection."""
        return None if self.incident is None else (self.incident.detected_ns - self.label.started_ns) / 1e9


@dataclass(frozen=True, slots=True)
class Grade:
    """What a list of incidents is worth; a ratio without anything to divide by is None.

    ``precision`` is the share of incidents that some label explains, ``recall`` the share of labels that some incident
    found, ``delay_seconds`` the median from a found label's beginning to its detection.
    """

    graded: tuple[Graded, ...]
    unexplained: tuple[Incident, ...]
    n_incidents: int

    @property
    def precision(self) -> float | None:
        """Share of incidents that are no false alarm."""
        return 1 - len(self.unexplained) / self.n_incidents if self.n_incidents else None

    @property
    def recall(self) -> float | None:
        """Share of labels that were found."""
        return sum(one.incident is not None for one in self.graded) / len(self.graded) if self.graded else None

    @property
    def delay_seconds(self) -> float | None:
        """Median delay of the labels that were found."""
        delays = [one.delay_seconds for one in self.graded if one.delay_seconds is not None]
        return float(np.median(delays)) if delays else None


def grade(labels: Sequence[Label], incidents: Sequence[Incident], *, grace_ns: int) -> Grade:
    """Hold incidents against labels.

    An incident explains itself by a label, and finds it, if job, cause and a rank agree and it was detected between
    the label's beginning and ``grace_ns`` after its end. Several incidents of one label are no false alarms.

    >>> fault = Label(started_ns=10, ended_ns=20, ranks=(3,))
    >>> seen = Incident("i", "job", "pcie", "warning", (3, 4), started_ns=9, detected_ns=12)
    >>> found = grade([fault], [seen], grace_ns=5)
    >>> found.precision, found.recall, found.graded[0].incident.incident
    (1.0, 1.0, 'i')
    """
    in_order = sorted(incidents, key=lambda one: (one.detected_ns, one.job, one.incident))
    graded = tuple(
        Graded(label, next((one for one in in_order if _fits(label, one, grace_ns)), None))
        for label in sorted(labels, key=lambda label: label.started_ns)
    )
    unexplained = tuple(one for one in in_order if not any(_fits(label, one, grace_ns) for label in labels))
    return Grade(graded, unexplained, len(in_order))


def _fits(label: Label, one: Incident, grace_ns: int) -> bool:
    return (
        label.job in (None, one.job)
        and label.cause in (None, one.cause)
        # who names nobody in particular is not contradicted
        and (not label.ranks or not one.ranks or not set(label.ranks).isdisjoint(one.ranks))
        and label.started_ns <= one.detected_ns
        and (label.ended_ns is None or one.detected_ns <= label.ended_ns + grace_ns)
    )
