"""The node's agent: finds ranks, traces them, reads the host, and publishes one set of events per interval.

Intervals end at whole multiples of their length in UTC, so that those of all nodes line up. An interval that was
served late is told as one longer interval. As long as the agent lives, every job that it knows gets a node event each
interval: event time advances even while every rank is stopped.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eacgm.events import Event, LayerCoverage
from eacgm.producers import clock as clocks
from eacgm.producers.budget import DEFAULT_PERCENT, Budget
from eacgm.producers.cost import AgentCost, CostMeter, ThreadCost
from eacgm.producers.gpus import GpuReader
from eacgm.producers.host import HostReader
from eacgm.producers.messages import Interval, calls_event, collectives_event, host_event, node_event, process_event
from eacgm.producers.observation import Observation
from eacgm.producers.probe import Probe
from eacgm.producers.probes import DEFAULT_PROBES
from eacgm.producers.processes import Changes, Process, ProcessTable
from eacgm.producers.roles import RANK
from eacgm.producers.tracing import Seen, Tracing, trains

#: a process's identity is published again after so long, for consumers that came later
REPEAT_NS = 30_000_000_000
#: a job's node events go on for so long after its last process has exited
LINGER_NS = 60_000_000_000


@dataclass(slots=True, eq=False)
class _Told:
    """A process that is published: the coverage and GPUs that were told last, and when (UTC ns)."""

    process: Process
    layers: list[LayerCoverage]
    told_ns: int
    gpus: list[str]


@dataclass(slots=True)
class _Job:
    """A job that has or had processes here: its newest incarnation, and when it was last alive (UTC ns)."""

    incarnation: int
    alive_ns: int


class Agent:
    """Watches the ranks of one node and hands their events to ``publish``.

    ``interval_ms`` is the intervals' length; ``node`` this node's name (default: host name); ``job`` names ranks that
    tell none; ``only_jobs`` leaves all other jobs out; ``root`` is where /proc and /sys are found; ``trace`` False does
    without eBPF and ``gpus`` False without NVML; ``unsent`` returns how many published events were lost on their way
    since it was last asked, which the next node events tell; ``probes`` is the table of functions to trace and
    ``cpu_percent`` what watching may cost, of one core (producers/budget.py; None: anything).

    Where eBPF is not to be had, ``failure`` says why, the coverage of all layers is ``failed``, and what /proc gives is
    published all the same.

    Not for several threads: one calls ``run``, or ``collect`` and ``close``.
    """

    def __init__(
        self,
        publish: Callable[[Event], None],
        *,
        interval_ms: int = 1000,
        node: str | None = None,
        job: str | None = None,
        only_jobs: Collection[str] | None = None,
        root: Path = Path("/"),
        trace: bool = True,
        gpus: bool = True,
        clock: Callable[[], clocks.ClockReading] = clocks.read,
        unsent: Callable[[], int] = lambda: 0,
        probes: Sequence[Probe] = DEFAULT_PROBES,
        cpu_percent: float | None = DEFAULT_PERCENT,
    ) -> None:
        folder = str(root).rstrip("/")
        self._publish = publish
        self._interval_ns = interval_ms * 1_000_000
        self._node = node or socket.gethostname()
        self._clock = clock
        self._table = ProcessTable(folder, job=job, only_jobs=only_jobs)
        self._tracing = Tracing.begin(probes) if trace else Tracing.without("tracing is switched off")
        self._host = HostReader(folder)
        self._gpus = GpuReader(folder, self._interval_ns) if gpus else None
        self._told: dict[int, _Told] = {}
        self._jobs: dict[str, _Job] = {}
        self._cost = CostMeter()
        self._thread_cost = ThreadCost()
        self._budget = Budget(cpu_percent / 100) if cpu_percent is not None else None
        self._unsent = unsent
        # microseconds: a restarted agent goes on above the numbers of the one before, so that an event is known by its
        # number as one that was delivered twice (docs/decisions/0044)
        self._sequence = time.time_ns() // 1000
        self._published_ns = 0
        self._offset_ns = clock().offset_ns
        self._end_ns = self._now_ns()

    @property
    def failure(self) -> str | None:
        """Why nothing is traced, None while tracing works."""
        return self._tracing.failure

    @property
    def processes(self) -> list[Process]:
        """The ranks and workers that are being watched, in the order in which they were found."""
        return [told.process for told in self._told.values()]

    def cost(self) -> AgentCost:
        """Return what the agent's process costs."""
        return self._cost.read()

    def run(self, stop: threading.Event) -> None:
        """Publish interval after interval until ``stop`` is set, then detach."""
        try:
            while not stop.wait((self._interval_ns - self._now_ns() % self._interval_ns) / 1e9):
                self.collect()
        finally:
            self.close()

    def close(self) -> None:
        """Detach every probe and end NVML's thread; /proc can still be collected."""
        self._tracing.close()
        if self._gpus is not None:
            self._gpus.close()
            self._gpus = None

    def collect(self, now_ns: int | None = None) -> None:
        """Publish the interval that ended at the last whole multiple before now (UTC ns); nothing if that was done.

        If the clock was set back, intervals go on from its new time.
        """
        reading = self._clock()
        self._offset_ns = reading.offset_ns
        now = reading.monotonic_ns + reading.offset_ns if now_ns is None else now_ns
        end = now // self._interval_ns * self._interval_ns
        if 0 <= self._end_ns - end < self._interval_ns:
            return
        start = self._end_ns if self._end_ns < end else end - self._interval_ns
        self._end_ns = end
        interval = Interval(start, end, self._node, reading.error_ns)
        seen = self._tracing.collect(now)
        self._keep_budget(seen, (end - start) * 1e-9)
        changes = self._table.scan(seen.exits, seen.executed)
        self._host.advance(scheduling=self._tracing.failure is not None)
        if self._gpus is not None:
            self._gpus.advance()
        self._finish(changes, seen.observations, interval)
        for told in self._told.values():
            self._tell(told, seen.observations.get(told.process.pid), interval)
        self._begin(changes, interval)
        self._tell_node(seen, interval, reading.monotonic_ns)

    def _keep_budget(self, seen: Seen, interval_seconds: float) -> None:
        """Let probes go while watching costs too much, and come back once there is room."""
        own = self._thread_cost.read()
        if self._budget is None or own is None:
            return
        spent = self._tracing.probe_seconds(seen.observations.values())
        change = self._budget.decide(
            own / interval_seconds, {group: seconds / interval_seconds for group, seconds in spent.items()}
        )
        if change is None:
            return
        if change.shed:
            limit = f"{self._budget.limit_ratio * 100:g}% of a core"
            self._tracing.shed(change.group, f"{change.group} probes taken off, as watching cost more than {limit}")
        else:
            self._tracing.restore(change.group)

    def _layers(self, traced: list[LayerCoverage]) -> list[LayerCoverage]:
        """Return the coverage to publish: the layers', the GPUs', and a word where the budget cannot be kept."""
        if self._gpus is not None:
            traced = [*traced, self._gpus.coverage]
        if self._budget is None or not self._budget.exhausted:
            return traced
        reason = f"watching costs more than {self._budget.limit_ratio * 100:g}% of a core, and no probe is to blame"
        return [*traced, LayerCoverage(layer="budget", status="partial", reason=reason)]

    def _finish(self, changes: Changes, observations: dict[int, Observation], interval: Interval) -> None:
        """Tell the last of processes that have ended, and drop those that turned out to be launchers."""
        for process in changes.ended:
            told = self._told.pop(process.pid, None)
            observation = observations.get(process.pid)
            if told is not None and observation is not None:
                self._tell_traced(process, observation, interval)
                self._send(host_event(process, {}, observation, interval))
            self._send(process_event(process, told.layers if told else [], interval, self._gpus_of(process.pid)))
            self._forget(process.pid)
        for process in changes.changed:
            if not process.published and self._told.pop(process.pid, None) is not None:
                self._forget(process.pid)

    def _forget(self, pid: int) -> None:
        self._tracing.unwatch(pid)
        self._host.forget(pid)
        if self._gpus is not None:
            self._gpus.forget(pid)

    def _gpus_of(self, pid: int) -> list[str]:
        return self._gpus.gpus_of(pid) if self._gpus is not None else []

    def _tell(self, told: _Told, observation: Observation | None, interval: Interval) -> None:
        process = told.process
        if observation is not None:
            self._tell_traced(process, observation, interval)
        self._send(host_event(process, self._host.process(process), observation, interval))
        layers = self._layers(self._tracing.refresh(process.pid))
        gpus = self._gpus_of(process.pid)
        if layers != told.layers or gpus != told.gpus or interval.end_ns - told.told_ns >= REPEAT_NS:
            told.layers, told.gpus, told.told_ns = layers, gpus, interval.end_ns
            self._send(process_event(process, layers, interval, gpus))

    def _tell_traced(self, process: Process, observation: Observation, interval: Interval) -> None:
        if not process.active and trains(observation):
            self._table.mark_active(process.pid)
        if process.role == RANK:
            self._send(calls_event(process, observation, interval))
            self._send(collectives_event(process, observation, interval))

    def _begin(self, changes: Changes, interval: Interval) -> None:
        """Watch what is new, last of all: finding symbols takes time, and the others' events shall not wait for it."""
        for process in changes.changed:
            told = self._told.get(process.pid)
            if told is not None:
                told.layers, told.told_ns = self._layers(self._tracing.watch(process.pid)), interval.end_ns
                self._send(process_event(process, told.layers, interval, told.gpus))
        for process in changes.found:
            layers, gpus = self._layers(self._tracing.watch(process.pid)), self._gpus_of(process.pid)
            self._told[process.pid] = _Told(process, layers, interval.end_ns, gpus)
            self._send(process_event(process, layers, interval, gpus))
            self._send(host_event(process, self._host.process(process), None, interval))

    def _tell_node(self, seen: Seen, interval: Interval, monotonic_ns: int) -> None:
        for told in self._told.values():
            job = told.process.identity.job
            self._jobs[job] = _Job(max(told.process.incarnation, self._newest(job)), interval.end_ns)
        self._tell_gpus(interval)
        readings: dict[str, Any] = dict(self._host.node(monotonic_ns))
        readings["net_retransmits"] = seen.unattributed_retransmits
        if self._gpus is not None:
            readings["xids"] = self._gpus.node_xids
        lost = seen.lost + (self._unsent() if self._jobs else 0)
        for job, known in list(self._jobs.items()):
            if interval.end_ns - known.alive_ns > LINGER_NS:
                del self._jobs[job]
            else:
                self._send(node_event(job, known.incarnation, readings, lost, interval))

    def _tell_gpus(self, interval: Interval) -> None:
        if self._gpus is not None:
            incarnations = {job: known.incarnation for job, known in self._jobs.items()}
            job_of = {pid: told.process.identity.job for pid, told in self._told.items()}
            for event in self._gpus.events(incarnations, job_of, interval):
                self._send(event)

    def _newest(self, job: str) -> int:
        return self._jobs[job].incarnation if job in self._jobs else 0

    def _send(self, event: Event) -> None:
        self._sequence += 1
        # consumers replay in this order: it never stands still or goes back, even if the clock does
        self._published_ns = max(self._published_ns + 1, time.monotonic_ns() + self._offset_ns)
        event.sequence, event.published_ns = self._sequence, self._published_ns
        self._publish(event)

    def _now_ns(self) -> int:
        reading = self._clock()
        return reading.monotonic_ns + reading.offset_ns
