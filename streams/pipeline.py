"""All rooms behind one door: events in, frames and alerts out.

Pure: the only time it knows is the events' own and what ``tick`` says. Jobs are independent of each other.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from eacgm.config import Config
from eacgm.errors import InputError
from eacgm.events import (
    CallsEvent,
    CollectivesEvent,
    Event,
    FloatArray,
    GpuEvent,
    HostEvent,
    ProcessEvent,
    SamplesEvent,
    no_floats,
)
from eacgm.streams import snapshot
from eacgm.streams.job import Job
from eacgm.streams.statistics import Statistics
from eacgm.streams.window import HORIZON_NS

_INPUT = frozenset({ProcessEvent, CallsEvent, CollectivesEvent, GpuEvent, HostEvent, SamplesEvent})
#: a job not heard of for so long is forgotten
RETIREMENT_NS = 3_600_000_000_000
#: events from an hour ahead are believed once their own time has gone on for so long, or so many wait
SUSPICION_NS = 2_000_000_000
MOST_SUSPECTS = 10_000
_NEVER = 2**63 - 1


class Pipeline:
    """Every job's way from events to alerts."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        self._idle_ns = self.config.window.idle_ms * 1_000_000
        self._jobs: dict[str, Job] = {}
        self._clock_ns = 0
        self._deadline_ns = _NEVER
        self._suspects: list[tuple[int, Event]] = []
        self._counts = Statistics()

    def push(self, event: Event) -> list[Event]:
        """Take one event; return the frames and alerts that follow, each frame before its alerts."""
        self._counts.events += 1
        if event.__class__ not in _INPUT:
            self._counts.ignored += 1
            return []
        clock_ns = event.published_ns or event.end_ns
        if clock_ns > self._clock_ns:
            if clock_ns > self._clock_ns + HORIZON_NS and self._clock_ns:
                return self._suspect(event, clock_ns)
            self._clock_ns = clock_ns
        if self._suspects:
            self._refute()
        out = self._rest() if self._clock_ns > self._deadline_ns else []
        job = self._jobs.get(event.job) or self._new_job(event.job)
        windows = job.windows
        refused, rested = windows.refused, windows.resting
        closed = windows.add(event)
        if windows.refused == refused:
            # a refused event is no sign of life: once idle, a job may go on at any later time
            job.heard_ns = self._clock_ns
            if rested:
                self._deadline_ns = min(self._deadline_ns, self._clock_ns + self._idle_ns)
        if closed:
            out += job.close(closed, self._counts)
        return out

    def _new_job(self, name: str) -> Job:
        job = self._jobs[name] = Job(name, self.config)
        return job

    def tick(self, now_ns: int) -> list[Event]:
        """Close by the clock what has been idle for ``window.idle_ms``; forget jobs not heard of for an hour.

        Publication times of events count as the clock too, so a replay needs no ticks.
        """
        out = self._believe() if self._suspects and now_ns + HORIZON_NS > self._suspects[0][0] else []
        self._clock_ns = max(self._clock_ns, now_ns)
        return out + self._rest() if self._clock_ns > self._deadline_ns else out

    def _suspect(self, event: Event, clock_ns: int) -> list[Event]:
        """Hold an event from an hour ahead: a long pause is over, or its node's clock is broken.

        Whoever publishes next at the old time refutes it; if nobody does for a while of its time, it is believed.
        """
        self._suspects.append((clock_ns, event))
        waited_ns = clock_ns - self._suspects[0][0]
        return self._believe() if waited_ns >= SUSPICION_NS or len(self._suspects) >= MOST_SUSPECTS else []

    def _refute(self) -> None:
        self._counts.refused += len(self._suspects)
        self._suspects = []

    def _believe(self) -> list[Event]:
        suspects, self._suspects = self._suspects, []
        self._clock_ns = suspects[0][0]
        self._counts.events -= len(suspects)
        return [out for _, event in suspects for out in self.push(event)]

    def _rest(self) -> list[Event]:
        """Close idle jobs, forget those long gone; the longest silent first."""
        out: list[Event] = []
        for job in self._oldest_first():
            silent_ns = self._clock_ns - job.heard_ns
            if silent_ns > self._idle_ns and not job.windows.resting:
                out += job.close(job.windows.close_all(), self._counts)
            if silent_ns > RETIREMENT_NS:
                self._retire(job)
        self._set_deadline()
        return out

    def finish(self) -> list[Event]:
        """Close every open window of every job; the input has ended."""
        out = self._believe() if self._suspects else []
        for job in self._oldest_first():
            out += job.close(job.windows.close_all(), self._counts)
        return out

    def statistics(self) -> Statistics:
        """Return what was done so far."""
        told = Statistics(**{f.name: getattr(self._counts, f.name) for f in fields(Statistics)})
        told.jobs = len(self._jobs)
        for job in self._jobs.values():
            told.ranks += job.n_ranks
            _add_job(told, job)
        return told

    def scores(self, job: str) -> FloatArray:
        """Return the scores of a job's newest frame, shape ``(n_ranks,)`` (nats, NaN while it cannot tell)."""
        known = self._jobs.get(job)
        return no_floats() if known is None or known.incarnation is None else known.incarnation.scores

    def snapshot(self) -> bytes:
        """Return the state of all jobs; a pipeline that restores it goes on as if nothing had happened."""
        state = {
            "jobs": [job.state() for job in self._jobs.values()],
            "clock_ns": self._clock_ns,
            "suspects": [event for _, event in self._suspects],
        }
        return self._pack(state)

    def restore(self, payload: bytes) -> None:
        """Replace everything by a snapshot; raises ``InputError`` for one that is not ours or of other settings."""
        state = self._unpack(payload)
        self._jobs = {}
        for job_state in state["jobs"]:
            self._load(job_state)
        self._clock_ns = state["clock_ns"]
        self._suspects = [(event.published_ns or event.end_ns, event) for event in state["suspects"]]
        self._counts = Statistics(**state["counts"])
        self._set_deadline()

    def _pack(self, state: dict[str, Any]) -> bytes:
        # times are of this process, not of the state
        counts = {f.name: getattr(self._counts, f.name) for f in fields(Statistics)} | _no_seconds()
        return snapshot.pack({"size_ms": self.config.window.size_ms, "counts": counts, **state})

    def _unpack(self, payload: bytes) -> dict[str, Any]:
        state = snapshot.unpack(payload)
        size_ms = self.config.window.size_ms
        if state.get("size_ms") != size_ms:
            raise InputError(f"snapshot was made with window.size_ms={state.get('size_ms')}; here it is {size_ms}")
        return state

    def _load(self, state: dict[str, Any]) -> Job:
        job = Job(state["name"], self.config)
        try:
            job.load(state)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise InputError(
                f"snapshot of job {job.name!r} does not fit this eACGM ({reason}); start without it"
            ) from None
        self._jobs[job.name] = job
        return job

    def _oldest_first(self) -> list[Job]:
        return sorted(self._jobs.values(), key=lambda job: (job.heard_ns, job.name))

    def _set_deadline(self) -> None:
        waits = (
            job.heard_ns + (RETIREMENT_NS if job.windows.resting else self._idle_ns) for job in self._jobs.values()
        )
        self._deadline_ns = min(waits, default=_NEVER)

    def _retire(self, job: Job) -> None:
        _add_job(self._counts, job)
        del self._jobs[job.name]


def _add_job(counts: Statistics, job: Job) -> None:
    """Add what a job counts itself."""
    for name, count in job.counts().items():
        setattr(counts, name, getattr(counts, name) + count)


def _no_seconds() -> dict[str, float]:
    return {f.name: 0.0 for f in fields(Statistics) if f.name.endswith("_seconds")}
