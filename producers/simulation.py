"""A seeded cluster that publishes what producers on it would: a synchronous training job with planted faults."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from eacgm.events import Event
from eacgm.producers import simulation_messages as messages
from eacgm.producers import simulation_readings as readings
from eacgm.producers.simulation_devices import devices
from eacgm.producers.simulation_messages import Clock
from eacgm.producers.simulation_plan import ClusterPlan
from eacgm.producers.simulation_steps import Job

#: seconds between two messages that say who a process is
IDENTITY_EVERY_SECONDS = 30
#: time between two messages of one agent
MESSAGE_NS = 1000


def simulate(plan: ClusterPlan) -> Iterator[Event]:
    """Yield the cluster's events in the order of their publication.

    The same plan gives the same events. Messages that are lost leave a hole in their node's sequence.
    """
    cluster = _Cluster(plan)
    for interval in range(plan.seconds):
        published = [event for node in range(plan.n_nodes) for event in cluster.publish(node, interval)]
        yield from sorted(published, key=lambda event: (event.published_ns, event.node))


class _Cluster:
    """Nodes with their agents, after the job has run: what is left is to tell of it."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._plan = plan
        random = np.random.default_rng([plan.seed, 3])
        offsets_s = random.uniform(-0.8, 0.8, plan.n_nodes) * plan.clock_error_ns * 1e-9
        self._clocks = [Clock(float(offset_s)) for offset_s in offsets_s]
        self._sequences = [0] * plan.n_nodes
        rank_offsets_s = offsets_s[np.arange(plan.n_ranks) // plan.ranks_per_node]
        self._timeline = timeline = Job(plan).run()
        self._spent = readings.shares(plan, timeline, rank_offsets_s)
        self._devices = devices(plan, self._spent)
        self._bounds_s = [readings.bounds_s(plan, float(offset_s)) for offset_s in offsets_s]
        ranks = range(plan.n_ranks)
        of_rank = [self._bounds_s[plan.node_of(rank)] for rank in ranks]
        self._calls = [readings.call_series(timeline, rank, of_rank[rank]) for rank in ranks]
        self._collectives = [readings.collective_series(timeline, rank, of_rank[rank]) for rank in ranks]
        self._lost = random.random((plan.seconds, plan.n_ranks)) < plan.loss_probability
        self._silent = np.zeros((plan.seconds, plan.n_nodes), dtype=bool)
        for fault in plan.faults:
            if fault.kind == "telemetry_lost":
                nodes = sorted({plan.node_of(rank) for rank in fault.ranks})
                self._silent[int(fault.onset_s) : math.ceil(fault.end_s), nodes] = True

    def publish(self, node: int, interval: int) -> list[Event]:
        """Return what arrives of one node's messages about an interval."""
        plan = self._plan
        arrived: list[Event] = []
        place = 0
        for rank in (*plan.ranks_on(node), None):
            for event in self._node(node, interval) if rank is None else self._rank(node, rank, interval):
                self._sequences[node] += 1
                place += 1
                event.sequence = self._sequences[node]
                event.published_ns = event.end_ns + place * MESSAGE_NS
                gone = self._silent[interval, node] or (rank is not None and self._lost[interval, rank])
                if not gone:
                    arrived.append(event)
        return arrived

    def _node(self, node: int, interval: int) -> list[Event]:
        head = messages.head(self._plan, node, None, interval)
        return [messages.node_event(head, self._plan.ranks_on(node), interval, self._devices)]

    def _rank(self, node: int, rank: int, interval: int) -> list[Event]:
        plan, at = self._plan, (interval, rank)
        head = messages.head(plan, node, rank, interval)
        local_rank = rank % plan.ranks_per_node
        death_s = float(self._timeline.death_s[rank]) + self._clocks[node].offset_s
        told: list[Event] = [messages.gpu_event(head, rank, local_rank, at, self._devices)]
        if death_s <= interval:
            return told
        if interval % IDENTITY_EVERY_SECONDS == 0:
            told.append(messages.process_event(head, plan, rank, None))
        if death_s <= interval + 1:
            # what the kernel had counted of a process goes with it
            told.append(messages.process_event(head, plan, rank, int(self._timeline.exit_code[rank])))
            return told
        end_s = float(self._bounds_s[node][interval + 1])
        collectives = messages.collectives_event(head, self._collectives[rank], interval, self._clocks[node])
        moved_bytes = float(collectives.payload_bytes.sum())
        told += [
            messages.calls_event(head, self._calls[rank], interval, end_s),
            collectives,
            messages.host_event(head, plan, at, self._spent, self._devices, moved_bytes),
            messages.worker_event(head, at, self._spent, self._devices),
        ]
        return told
