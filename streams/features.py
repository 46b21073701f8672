"""A joined window becomes a frame: a row per rank, a column per feature of the catalogue.

Columns are only what was ever told in the job, in the catalogue's order. What was not told is NaN; what a process
that is seen did not do is 0. Counters are scaled to the window's length where a producer's interval was another.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eacgm.config import Config
from eacgm.events import FloatArray, FrameEvent
from eacgm.streams import scatter
from eacgm.streams.call_readings import CallReadings, column, fill_allocated, fill_columns
from eacgm.streams.catalogue import CATALOGUE, column_order
from eacgm.streams.collective_readings import collective_readings
from eacgm.streams.gpu_readings import gpu_readings
from eacgm.streams.host_readings import host_readings, node_readings
from eacgm.streams.joined_window import JoinedWindow
from eacgm.streams.phase import Phase
from eacgm.streams.sample_readings import SampleReadings
from eacgm.streams.steps import Steps

AT = {name: index for index, name in enumerate(CATALOGUE)}
N_CATALOGUE = len(CATALOGUE)

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

    @property
    def refused(self) -> int:
        """Names of readings from elsewhere that found no room."""
        return self._samples.refused

    def frame(self, joined: JoinedWindow, job: str, incarnation: int) -> FrameEvent:
        """Return the window's frame."""
        if joined.moved is not None:
            self._resize(joined)
        n_ranks = joined.ranks.size
        self._traced = self._traced or bool(joined.calls.events or joined.collectives.events)
        values = np.full((n_ranks, N_CATALOGUE + len(self._samples.others)), np.nan)
        seen = self._told_by_agent(joined)
        step_thread = host_readings(values, joined, self._window_seconds)
        if self._traced:
            self._from_calls(values, joined, step_thread)
        gpu_readings(values, joined, self._window_seconds)
        node_readings(values, joined)
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

    def _from_calls(self, values: FloatArray, joined: JoinedWindow, step_thread: FloatArray) -> None:
        n_ranks = joined.ranks.size
        table, open_seconds = self._calls.table(joined.calls, n_ranks)
        covered = joined.calls.covered_seconds(n_ranks)
        fill_columns(values, table, scatter.to_window(covered, self._window_seconds))
        fill_allocated(values, joined.calls)
        values[joined.calls.rows, AT["call_open_seconds"]] = open_seconds[joined.calls.rows]
        covered = np.where(np.isnan(step_thread[:, 2]), covered, step_thread[:, 2])
        covered = np.where(covered > 0, covered, self._window_seconds)
        step_seconds = self._steps.observe(
            column(table, "backward_count"), covered, joined.collective_calls, joined.end_ns - joined.start_ns
        )
        values[:, AT["step_seconds"]] = step_seconds
        self._per_step(values, step_thread, step_seconds)
        collective_readings(values, joined, self._steps.collectives_per_step(), self._window_seconds)
        self._observed_count = float(column(table, "call_count").sum()) + joined.collective_calls.row.size

    def _per_step(self, values: FloatArray, step_thread: FloatArray, step_seconds: FloatArray) -> None:
        """Share the step thread's time since the last step out among the steps."""
        for source, at, name in ((0, 0, "data_wait_seconds"), (1, 2, "compute_seconds")):
            told = ~np.isnan(step_thread[:, source])
            self._since_step[:, at] += np.where(told, step_thread[:, source], 0.0)
            self._since_step[:, at + 1] += np.where(told, step_thread[:, 2], 0.0)
            share = scatter.ratio(self._since_step[:, at], self._since_step[:, at + 1])
            values[:, AT[name]] = share * step_seconds
        self._since_step[~np.isnan(step_seconds)] = 0.0

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
