"""A joined window becomes a frame: a row per rank, a column per feature of the catalogue.

Columns are only what was ever told in the job, in the catalogue's order. What was not told is NaN; what a process
that is seen did not do is 0. Counters are scaled to the window's length where a producer's interval was another.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np

from eacgm.config import Config
from eacgm.events import FloatArray, FrameEvent, HostEvent
from eacgm.streams import scatter
from eacgm.streams.call_readings import CallReadings, column, fill_columns
from eacgm.streams.catalogue import CATALOGUE, column_order
from eacgm.streams.gpu_readings import gpu_readings
from eacgm.streams.join import JoinedWindow
from eacgm.streams.phase import Phase
from eacgm.streams.placed import Placed
from eacgm.streams.sample_readings import SampleReadings
from eacgm.streams.steps import Steps

AT = {name: index for index, name in enumerate(CATALOGUE)}
N_CATALOGUE = len(CATALOGUE)

_HOST_COUNTERS = (
    "cpu_seconds",
    "run_queue_wait_seconds",
    "throttled_seconds",
    "io_wait_seconds",
    "major_faults",
    "io_read_bytes",
    "io_written_bytes",
    "net_sent_bytes",
    "net_received_bytes",
    "net_retransmits",
)
_HOST_GAUGES = ("rss_bytes", "net_rtt_seconds")
_HOST_SUMS = (*_HOST_COUNTERS, "oom_kills")
_STEP_THREAD = ("step_thread_blocked_seconds", "step_thread_cpu_seconds", "step_thread_run_queue_wait_seconds")
_HOST = attrgetter(*_HOST_SUMS, *_STEP_THREAD, *_HOST_GAUGES, "stopped", "stopped_seconds", "start_ns", "end_ns")
_N_SUMS = len(_HOST_SUMS) + len(_STEP_THREAD)
_N_FIELDS = _N_SUMS + len(_HOST_GAUGES) + 4
_WORKER = attrgetter("cpu_seconds", "io_wait_seconds")
_NODE = attrgetter("net_retransmits", "oom_kills", "net_rtt_seconds")

_COUNTER_COLUMNS = np.array([AT[name] for name in _HOST_COUNTERS])
_GAUGE_COLUMNS = np.array([AT[name] for name in _HOST_GAUGES])
#: of a process that is seen and was once seen doing this: not told means not done
_ZERO_COLUMNS = np.array(
    [
        AT[name]
        for name in (
            "step_count",
            "gc_count",
            "collective_count",
            "collective_bytes",
            "collective_errors",
            "collective_open_count",
            "collective_open_seconds",
            "call_open_seconds",
            "cuda_launches",
            "cuda_launch_seconds",
            "cuda_memcpy_bytes",
            "cuda_errors",
        )
    ]
)
#: told in every window in which the process is seen: by these, visibility is measured
_STEADY_COLUMNS = np.array([AT[name] for name, f in CATALOGUE.items() if f.kind not in ("mean", "total")])


class Features:
    """Turns the joined windows of one incarnation of a job into frames."""

    def __init__(self, config: Config) -> None:
        self._window_seconds = config.window.size_ms / 1000
        self._calls = CallReadings()
        self._samples = SampleReadings()
        self._steps = Steps()
        self._phase = Phase()
        self._ever = np.zeros((0, N_CATALOGUE), dtype=bool)
        # seconds of the step thread since the last step: blocked, covered; working, covered
        self._since_step = np.zeros((0, 4))
        self._frames = 0
        self._observed_count = 0.0
        #: whether functions of this job were ever traced; readings from elsewhere need none of that
        self._traced = False
        self._selected = np.empty(0, dtype=np.int64)
        self._names: list[str] = []

    def frame(self, joined: JoinedWindow, job: str, incarnation: int) -> FrameEvent:
        """Return the window's frame."""
        if joined.moved is not None:
            self._resize(joined)
        n_ranks = joined.ranks.size
        self._traced = self._traced or bool(joined.calls.events or joined.collectives.events)
        values = np.full((n_ranks, N_CATALOGUE + len(self._samples.others)), np.nan)
        seen = self._told_by_agent(joined)
        step_thread = self._from_host(values, joined)
        if self._traced:
            self._from_calls(values, joined, step_thread)
        gpu_readings(values, joined, self._window_seconds)
        self._from_nodes(values, joined)
        self._from_process(values, joined, seen)
        values = self._samples.fill(values, joined.samples)
        self._fill_zeros(values, seen)
        self._frames += 1
        return FrameEvent(
            job=job,
            incarnation=incarnation,
            role="job",
            start_ns=joined.start_ns,
            end_ns=joined.end_ns,
            published_ns=joined.end_ns,
            sequence=self._frames,
            lost=int(joined.lost.sum()),
            phase=self._phase.observe(values, self._samples.phase(joined.samples)),
            coverage=self._coverage(values, joined),
            late=joined.late,
            ranks=joined.ranks,
            present=joined.present.tolist(),
            nodes=joined.nodes,
            groups=joined.groups,
            features=self._names,
            values=values[:, self._selected],
        )

    def _resize(self, joined: JoinedWindow) -> None:
        assert joined.moved is not None
        n_ranks = joined.ranks.size
        self._steps.resize(joined.moved, n_ranks)
        ever = np.zeros((n_ranks, self._ever.shape[1]), dtype=bool)
        ever[joined.moved] = self._ever
        since = np.zeros((n_ranks, 4))
        since[joined.moved] = self._since_step
        self._ever, self._since_step = ever, since

    def _told_by_agent(self, joined: JoinedWindow) -> Any:
        seen = np.zeros(joined.ranks.size, dtype=bool)
        for rows in (joined.hosts.rows, joined.calls.rows, joined.collectives.rows):
            seen[rows] = True
        return seen

    def _from_host(self, values: FloatArray, joined: JoinedWindow) -> FloatArray:
        """Fill what the kernel tells of processes; return the step thread's seconds and what they cover.

        Of shape ``(n_ranks, 4)``: blocked, on or waiting for a CPU, covered (s), scale to the window.
        """
        n_ranks = joined.ranks.size
        placed = joined.hosts
        if not placed.events:
            return np.full((n_ranks, 4), np.nan)
        told = scatter.readings(_HOST, placed.events, _N_FIELDS)
        seconds = (told[:, -1:] - told[:, -2:-1]) * 1e-9
        total = scatter.sums(placed.rows, np.concatenate((told[:, :_N_SUMS], seconds), axis=1), n_ranks)
        scale = self._scale(total[:, -1])
        values[:, _COUNTER_COLUMNS] = total[:, : len(_HOST_COUNTERS)] * scale[:, None]
        values[:, AT["oom_kills"]] = total[:, len(_HOST_COUNTERS)]
        values[:, _GAUGE_COLUMNS] = scatter.lasts(placed.rows, told[:, _N_SUMS : _N_SUMS + 2], n_ranks)
        # a reading of seconds says more than one look at the state
        stopped = np.where(np.isnan(told[:, -3:-2]), told[:, -4:-3] * seconds, told[:, -3:-2])
        with np.errstate(divide="ignore", invalid="ignore"):
            values[:, AT["stopped_ratio"]] = np.minimum(
                scatter.sums(placed.rows, stopped, n_ranks)[:, 0] / total[:, -1], 1.0
            )
        self._from_workers(values, joined.workers)
        blocked, cpu, runnable = total[:, _N_SUMS - 3], total[:, _N_SUMS - 2], total[:, _N_SUMS - 1]
        return np.stack((blocked, cpu + runnable, total[:, -1], scale), axis=1)

    def _scale(self, covered_seconds: FloatArray) -> FloatArray:
        """Return what brings a counter of so many seconds to one window; 1 for a process seen only in part of it."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(covered_seconds > 0.5 * self._window_seconds, self._window_seconds / covered_seconds, 1.0)

    def _from_workers(self, values: FloatArray, placed: Placed[HostEvent]) -> None:
        if not placed.events:
            return
        told = scatter.readings(_WORKER, placed.events, 2)
        seconds = np.array([(event.end_ns - event.start_ns) * 1e-9 for event in placed.events])
        told *= self._scale(seconds)[:, None]
        values[:, [AT["worker_cpu_seconds"], AT["worker_io_wait_seconds"]]] = scatter.sums(
            placed.rows, told, values.shape[0]
        )

    def _from_calls(self, values: FloatArray, joined: JoinedWindow, step_thread: FloatArray) -> None:
        n_ranks = joined.ranks.size
        table, open_seconds = self._calls.table(joined.calls, n_ranks)
        covered = _covered_seconds(joined.calls, n_ranks)
        fill_columns(values, table, self._scale(covered))
        values[joined.calls.rows, AT["call_open_seconds"]] = open_seconds[joined.calls.rows]
        covered = np.where(np.isnan(step_thread[:, 2]), covered, step_thread[:, 2])
        covered = np.where(covered > 0, covered, self._window_seconds)
        step_seconds = self._steps.observe(
            column(table, "backward_count"), covered, joined.collective_calls, joined.end_ns - joined.start_ns
        )
        values[:, AT["step_seconds"]] = step_seconds
        self._per_step(values, step_thread, step_seconds)
        self._from_collectives(values, joined)
        self._observed_count = float(column(table, "call_count").sum()) + joined.collective_calls.row.size

    def _per_step(self, values: FloatArray, step_thread: FloatArray, step_seconds: FloatArray) -> None:
        """Share the step thread's time since the last step out among the steps."""
        for source, at, name in ((0, 0, "data_wait_seconds"), (1, 2, "compute_seconds")):
            told = ~np.isnan(step_thread[:, source])
            self._since_step[:, at] += np.where(told, step_thread[:, source], 0.0)
            self._since_step[:, at + 1] += np.where(told, step_thread[:, 2], 0.0)
            share = _per(self._since_step[:, at], self._since_step[:, at + 1])
            values[:, AT[name]] = share * step_seconds
        self._since_step[~np.isnan(step_seconds)] = 0.0

    def _from_collectives(self, values: FloatArray, joined: JoinedWindow) -> None:
        calls, placed = joined.collective_calls, joined.collectives
        if not placed.events:
            return
        n_ranks = joined.ranks.size
        rows = placed.rows
        count = np.bincount(calls.row, minlength=n_ranks).astype(np.float64)
        seconds = scatter.counted(calls.row, (calls.end_ns - calls.start_ns) * 1e-9, n_ranks)
        values[:, AT["collective_seconds"]] = _per(seconds, count) * self._steps.collectives_per_step()
        scale = self._scale(_covered_seconds(placed, n_ranks))
        values[rows, AT["collective_count"]] = (count * scale)[rows]
        values[:, AT["collective_lag_seconds"]] = joined.lag_seconds
        values[rows, AT["collective_seq"]] = joined.position[rows]
        sized = calls.payload_bytes >= 0
        moved = scatter.counted(calls.row[sized], calls.payload_bytes[sized], n_ranks) * scale
        # calls of which none tells its size moved an unknown number of bytes
        untold = (count > 0) & (np.bincount(calls.row[sized], minlength=n_ranks) == 0)
        values[rows, AT["collective_bytes"]] = np.where(untold, np.nan, moved)[rows]
        failed = np.bincount(calls.row[calls.return_code != 0], minlength=n_ranks)
        values[rows, AT["collective_errors"]] = failed[rows]
        # the last message of a process says what is in flight at the window's end
        opened = np.array([len(event.open_communicator) for event in placed.events])
        ages = np.zeros(opened.size)
        for index in np.flatnonzero(opened).tolist():
            event = placed.events[index]
            ages[index] = max(event.end_ns - min(event.open_call_start_ns.tolist()), 0) * 1e-9
        values[placed.rows, AT["collective_open_count"]] = opened
        values[placed.rows, AT["collective_open_seconds"]] = ages
        values[:, AT["call_open_seconds"]] = np.fmax(
            values[:, AT["call_open_seconds"]], values[:, AT["collective_open_seconds"]]
        )

    def _from_nodes(self, values: FloatArray, joined: JoinedWindow) -> None:
        placed = joined.node_hosts
        if not placed.events:
            return
        n_ranks = joined.ranks.size
        told = scatter.readings(_NODE, placed.events, 3)
        total = scatter.sums(placed.rows, told, n_ranks)
        present = joined.present
        for at, name in ((0, "net_retransmits"), (1, "oom_kills"), (2, "net_rtt_seconds")):
            # what is told of the process itself says more than what is told of its node
            own = values[:, AT[name]]
            values[:, AT[name]] = np.where(np.isnan(own) & present, total[:, at], own)
        codes = np.array([float(event.xids[-1]) if event.xids else np.nan for event in placed.events])
        xid = scatter.lasts(placed.rows, codes[:, None], n_ranks)[:, 0]
        own = values[:, AT["gpu_xid"]]
        # a GPU that tells its own XID says more than its node's kernel log, which does not say whose it is
        told_by_gpus = {joined.nodes[row] for row in np.flatnonzero(own > 0).tolist()}
        settled = np.array([node in told_by_gpus for node in joined.nodes], dtype=bool)
        values[:, AT["gpu_xid"]] = np.where(np.isnan(xid) | settled, own, xid)

    def _from_process(self, values: FloatArray, joined: JoinedWindow, seen: Any) -> None:
        alive = seen | joined.ended
        if alive.any():
            values[alive, AT["exited"]] = joined.ended[alive]
            values[alive, AT["exit_code"]] = np.where(joined.ended, joined.exit_code, 0.0)[alive]
            values[alive, AT["lost_events"]] = joined.lost[alive]

    def _fill_zeros(self, values: FloatArray, seen: Any) -> None:
        """Put 0 where a process that is seen did not do what it did before, and note what was ever told."""
        ever = self._ever
        if ever.shape[1] < values.shape[1]:
            ever = np.pad(ever, ((0, 0), (0, values.shape[1] - ever.shape[1])))
        block = values[:, _ZERO_COLUMNS]
        values[:, _ZERO_COLUMNS] = np.where(np.isnan(block) & ever[:, _ZERO_COLUMNS] & seen[:, None], 0.0, block)
        before = self._selected.size
        self._ever = ever | ~np.isnan(values)
        told = self._ever.any(axis=0)
        if np.count_nonzero(told) != before:
            self._select(np.flatnonzero(told))

    def _select(self, told: Any) -> None:
        names = [*CATALOGUE, *self._samples.others]
        ordered = sorted(told.tolist(), key=lambda at: column_order(names[at]))
        self._selected = np.array(ordered, dtype=np.int64)
        self._names = [names[at] for at in ordered]

    def _coverage(self, values: FloatArray, joined: JoinedWindow) -> float:
        """Return the share of what was ever told of the ranks still expected that was told in this window."""
        expected_rows = ~joined.gone
        steady = np.concatenate((_STEADY_COLUMNS, np.arange(N_CATALOGUE, values.shape[1])))
        ever = self._ever[np.ix_(expected_rows, steady)]
        told = ever & ~np.isnan(values[np.ix_(expected_rows, steady)])
        width = ever.sum(axis=1)
        known = width > 0
        if not known.any():
            return 1.0 if joined.present[expected_rows].all() else 0.0
        # of a rank never seen, as much is expected as of the others
        expected = width.sum() + width[known].mean() * np.count_nonzero(~known)
        share = float(told.sum() / expected)
        lost = float(joined.lost.sum())
        if lost > 0:
            share *= self._observed_count / (self._observed_count + lost)
        return min(max(share, 0.0), 1.0)

    def state(self) -> dict[str, Any]:
        """Return everything that the future depends on."""
        return {
            "samples": self._samples.state(),
            "steps": self._steps.state(),
            "phase": self._phase.state(),
            "ever": self._ever,
            "since_step": self._since_step,
            "frames": self._frames,
            "traced": self._traced,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        self._samples.load(state["samples"])
        self._steps.load(state["steps"])
        self._phase.load(state["phase"])
        self._ever = state["ever"].copy()
        self._since_step = state["since_step"].copy()
        self._frames, self._traced = state["frames"], state["traced"]
        self._select(np.flatnonzero(self._ever.any(axis=0)))


def _per(total: FloatArray, count: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(count > 0, total / count, np.nan)


def _covered_seconds(placed: Placed[Any], n_ranks: int) -> FloatArray:
    """Return the summed length of each rank's intervals, of shape ``(n_ranks,)``, 0 where there is none."""
    if not placed.events:
        return np.zeros(n_ranks)
    covered_ns = np.array([event.end_ns - event.start_ns for event in placed.events])
    return scatter.counted(placed.rows, covered_ns * 1e-9, n_ranks)
