"""Events as no producer would send them: the pipeline goes on, and no number in it becomes a warning."""

import random
from dataclasses import replace

import pytest

from eacgm.events import FrameEvent
from eacgm.producers.simulation import simulate
from eacgm.producers.simulation_plan import ClusterPlan
from eacgm.streams.pipeline import Pipeline


@pytest.fixture(scope="module")
def events():
    return list(simulate(ClusterPlan(n_ranks=4, seconds=40, seed=3)))


def frames(events):
    pipeline = Pipeline()
    out = [frame for event in events for frame in pipeline.push(event)] + pipeline.finish()
    return [event for event in out if isinstance(event, FrameEvent)]


def test_in_any_order(events):
    assert frames(random.Random(3).sample(events, len(events)))


def test_of_ranks_that_come_and_go(events):
    numbers = random.Random(4)
    strange = [replace(e, rank=numbers.randrange(500)) if numbers.random() < 0.5 else e for e in events]
    assert max(len(frame.ranks) for frame in frames(strange)) > 100


def test_of_roles_nobody_knows(events):
    numbers = random.Random(5)
    roles = ("", "master", "worker", "node", "rank")
    assert frames([replace(event, role=numbers.choice(roles)) for event in events])
