"""A worker may die between any two of its steps: its successor says the same as one that never died."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from eacgm.config import Config
from eacgm.events import AlertEvent, FrameEvent
from eacgm.schemas.recording import RecordingReader
from eacgm.streams.holdings import Holdings
from eacgm.streams.replay import replay

RECORDING = Path(__file__).parents[1] / "golden" / "recording"
JOBS = ("one", "two")


@cache
def topics():
    """Return the topics' messages in one partition: (source, offset, event), each topic's offsets ascending."""
    offsets, messages = {}, []
    for event in list(RecordingReader(RECORDING))[:600]:
        for job in JOBS:
            offset = offsets[event.topic] = offsets.get(event.topic, -1) + 1
            messages.append(((event.topic, 0), offset, replace(event, job=job)))
    return messages


@cache
def expected():
    """Return what a pipeline that never died says, by job."""
    return {job: said(replay([event for _, _, event in topics() if event.job == job], Config())) for job in JOBS}


def said(events):
    frames = {event.start_ns: event for event in events if isinstance(event, FrameEvent)}
    alerts = {event.id: event for event in events if isinstance(event, AlertEvent)}
    return frames, alerts


class Worker:
    """A shell in small: a log of messages, committed offsets and a table that outlive it."""

    def __init__(self):
        self.table, self.acked, self.out = {}, set(), []
        self.start()

    def start(self):
        self.holdings = Holdings(Config(), self.table.get)
        for job in self.table:
            # also those of which nothing new comes
            self.holdings.open(job, 0)
        every = ((source, offset) for source, offset, _ in topics())
        self.at = next((n for n, place in enumerate(every) if place not in self.acked), len(topics()))

    def read(self, count):
        for number in range(self.at, min(self.at + count, len(topics()))):
            source, offset, event = topics()[number]
            self.out += self.holdings.push(source, offset, event, 0)
            self.acked |= set(self.holdings.covered)
        self.at = min(self.at + count, len(topics()))

    def checkpoint(self, steps):
        """Go so many steps of a checkpoint and die in its midst if they are not enough."""
        for job in self.holdings.due():
            point = self.holdings.checkpoint(job)
            if steps <= 0:
                return False
            self.table[job] = point.payload
            self.holdings.written(point)
            if steps <= 1:
                return False
            self.acked |= set(point.handles)
            steps -= 2
        return True

    def die(self):
        self.start()

    def finish(self):
        self.read(len(topics()))
        for _, pipeline in self.holdings.pipelines():
            self.out += pipeline.finish()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(1, 400)),
        st.tuples(st.just("checkpoint"), st.integers(0, 5)),
        st.tuples(st.just("die"), st.just(0)),
    ),
    max_size=10,
)


@given(steps)
@example([("read", 1000), ("checkpoint", 4), ("die", 0)])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_dying_between_any_two_steps_is_invisible(plan):
    worker = Worker()
    for what, count in plan:
        if what == "read":
            worker.read(count)
        elif what == "die" or not worker.checkpoint(count):
            worker.die()
    worker.finish()
    for job in JOBS:
        frames, alerts = said([event for event in worker.out if event.job == job])
        wanted_frames, wanted_alerts = expected()[job]
        assert alerts.keys() == wanted_alerts.keys()
        assert frames.keys() == wanted_frames.keys()
        for start_ns, frame in frames.items():
            assert frame.sequence == wanted_frames[start_ns].sequence
            np.testing.assert_array_equal(frame.values, wanted_frames[start_ns].values)


def test_what_the_snapshot_includes_is_skipped_and_done_with_only_once_it_is_written():
    holdings = Holdings(Config(), lambda job: None)
    source, offset, event = topics()[0]
    place = (source, offset)
    for _ in range(2):
        assert holdings.push(source, offset, event, 0) == []
    point = holdings.checkpoint(event.job)
    assert point.handles == [place, place]
    assert holdings.push(source, offset, event, 0) == []
    assert holdings.covered == []  # not written yet
    holdings.written(point)
    assert holdings.push(source, offset, event, 0) == []
    assert holdings.covered == [place]
    assert holdings.skipped == 3


def test_a_damaged_snapshot_is_told_and_the_job_begins_anew():
    holdings = Holdings(Config(), lambda job: b"rubbish")
    holdings.push(*topics()[0], 0)
    assert len(holdings.unusable) == 1
    assert "snapshot of job 'one'" in holdings.unusable[0]
