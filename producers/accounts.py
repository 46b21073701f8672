"""What the programs' growing totals say about one interval of one process: differences, and nothing else.

Every account keeps the totals of the collection before. A total that seems to shrink (it was read while it changed)
counts as no change, and what it lacks is made up in the next interval.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eacgm.events import IntArray
from eacgm.producers.maps import (
    BLOCKED,
    COMMUNICATOR_NAMED,
    N_BUCKETS,
    N_TIMES,
    RUNNABLE,
    RUNNING,
    SLEEPING,
    STOPPED,
    UNINTERRUPTIBLE,
)
from eacgm.producers.observation import CallColumns, CollectiveColumns, HostColumns

_NS = 1e-9


@dataclass(slots=True)
class _Totals:
    """Totals of one kind, shape ``(n,)`` or ``(n, m)``, and their growth."""

    last: IntArray

    def grow(self, now: IntArray) -> IntArray:
        """Return by how much the totals grew."""
        growth: IntArray = np.maximum(now - self.last, 0)
        self.last = np.maximum(now, self.last)
        return growth


def thread_times(threads: NDArray[Any], now_ns: int) -> IntArray:
    """Return each thread's nanoseconds in each state, including now's; shape ``(n_threads, N_TIMES)``."""
    times: IntArray = threads["time_ns"].astype(np.int64)
    open_ns = np.maximum(now_ns - threads["since_ns"].astype(np.int64), 0)
    state = threads["state"] % N_TIMES
    times[np.arange(len(threads)), state] += open_ns
    asleep = (state == SLEEPING) | (state == UNINTERRUPTIBLE)
    times[:, BLOCKED] += np.where(asleep & (threads["outer_sp"] == 0), open_ns, 0)
    return times


@dataclass(slots=True)
class HostAccount:
    """One process's scheduler and TCP totals.

    ``counted`` says which of bytes sent, bytes received and retransmits this kernel has a tracepoint for.
    """

    pid: int
    counted: tuple[bool, bool, bool] = (True, True, True)
    times: _Totals | None = None
    main: _Totals | None = None
    step: _Totals | None = None
    step_tid: int = 0
    traffic: _Totals = field(default_factory=lambda: _Totals(np.zeros(3, dtype=np.int64)))

    def start(self, tids: IntArray, times: IntArray) -> None:
        """Begin to count from here."""
        self.times = _Totals(times.sum(axis=0))
        self.main = _Totals(times[tids == self.pid].sum(axis=0))

    def collect(
        self,
        tids: IntArray,
        times: IntArray,
        states: IntArray,
        departed: IntArray,
        step_tid: int,
        traffic: IntArray,
    ) -> HostColumns:
        """Return the interval's values.

        ``tids`` and ``states`` are of shape ``(n_threads,)``, ``times`` ``(n_threads, N_TIMES)``, ``departed``
        ``(N_TIMES,)``;
        ``traffic`` is bytes sent, bytes received, retransmits.
        """
        if self.times is None or self.main is None:
            self.start(tids, times)
        assert self.times is not None
        assert self.main is not None
        main = times[tids == self.pid]
        spent = self.times.grow(times.sum(axis=0) + departed) * _NS
        stopped = self.main.grow(main.sum(axis=0))[STOPPED] * _NS
        columns = HostColumns(
            cpu_seconds=float(spent[RUNNING]),
            run_queue_wait_seconds=float(spent[RUNNABLE]),
            off_cpu_seconds=float(spent[SLEEPING] + spent[UNINTERRUPTIBLE] + spent[STOPPED]),
            io_wait_seconds=float(spent[UNINTERRUPTIBLE]),
            stopped=bool((states[tids == self.pid] == STOPPED).any()),
            stopped_seconds=float(stopped),
            threads=len(tids),
        )
        self._add_step_thread(columns, times[tids == step_tid], step_tid)
        grown = zip(self.traffic.grow(traffic).tolist(), self.counted, strict=True)
        columns.net_sent_bytes, columns.net_received_bytes, columns.net_retransmits = (
            float(amount) if counted else None for amount, counted in grown
        )
        return columns

    def _add_step_thread(self, columns: HostColumns, times: IntArray, step_tid: int) -> None:
        if not step_tid or not len(times):
            self.step, self.step_tid = None, 0
        elif self.step is None or step_tid != self.step_tid:
            self.step, self.step_tid = _Totals(times[0]), step_tid
        else:
            spent = self.step.grow(times[0]) * _NS
            columns.step_thread_cpu_seconds = float(spent[RUNNING])
            columns.step_thread_run_queue_wait_seconds = float(spent[RUNNABLE])
            columns.step_thread_blocked_seconds = float(spent[BLOCKED])


class CallAccount:
    """One process's totals of calls, a row for each function id of ``functions`` (layer, function, family).

    ``functions`` may grow, as ids are given when functions are found.
    """

    def __init__(self, functions: list[tuple[str, str, str]]) -> None:
        self._functions = functions
        self._names: list[tuple[str, str]] = []
        self._row_of: dict[tuple[str, str], int] = {}
        #: function id -> row; ids of one name and different families share a row
        self._row: IntArray = np.zeros(0, dtype=np.int64)
        self._totals = _Totals(np.zeros((0, 4 + N_BUCKETS), dtype=np.int64))
        self._grow()

    def _grow(self) -> None:
        """Make room for the functions that were found since."""
        new = [(layer, function) for layer, function, _ in self._functions[len(self._row) :]]
        rows = [self._row_of.setdefault(name, len(self._row_of)) for name in new]
        self._names = list(self._row_of)
        self._row = np.concatenate((self._row, np.array(rows, dtype=np.int64)))
        fresh = np.zeros((len(self._names) - len(self._totals.last), 4 + N_BUCKETS), dtype=np.int64)
        self._totals.last = np.concatenate((self._totals.last, fresh))

    def collect(
        self, ids: IntArray, rows: NDArray[Any], interval: int, open_ids: IntArray, open_ages_ns: IntArray
    ) -> CallColumns:
        """Return the rows of all functions that were ever called.

        ``ids`` and ``rows`` are the process's entries of the map ``rows``; ``interval`` is the number under which the
        programs kept this interval's maxima; ``open_*`` are the calls in flight.
        """
        if len(self._functions) > len(self._row):
            self._grow()
        n = len(self._names)
        totals = np.zeros((n, 4 + N_BUCKETS), dtype=np.int64)
        row = self._row[ids]
        np.add.at(totals[:, :4], row, rows["sums"].astype(np.int64))
        np.add.at(totals[:, 4:], row, rows["histogram"].astype(np.int64))
        growth = self._totals.grow(totals)
        greatest = np.zeros(n, dtype=np.int64)
        half = interval % 2
        valid = rows["max_interval"][:, half] == interval
        np.maximum.at(greatest, row[valid], rows["max_ns"][valid, half].astype(np.int64))
        open_count = np.bincount(self._row[open_ids], minlength=n)
        open_age = np.zeros(n, dtype=np.int64)
        np.maximum.at(open_age, self._row[open_ids], open_ages_ns)
        seen = np.flatnonzero((self._totals.last[:, 0] > 0) | (open_count > 0))
        growth = growth[seen]
        at, bucket = np.nonzero(growth[:, 4:])
        return CallColumns(
            layer=[self._names[i][0] for i in seen.tolist()],
            function=[self._names[i][1] for i in seen.tolist()],
            count=growth[:, 0],
            errors=growth[:, 1],
            payload_bytes=growth[:, 2],
            total_ns=growth[:, 3],
            max_ns=greatest[seen],
            open_count=open_count[seen],
            open_age_ns=open_age[seen],
            histogram_row=at,
            histogram_bucket=bucket,
            histogram_count=growth[at, 4 + bucket],
        )


class CollectiveAccount:
    """One process's communicators: by their own name, else numbered within their family in the order of first sight."""

    def __init__(self, functions: list[tuple[str, str, str]]) -> None:
        self._functions = functions
        self._names: dict[tuple[str, int], str] = {}
        self._counts: dict[str, int] = {}

    def collect(self, records: NDArray[Any], open_calls: NDArray[Any], offset_ns: int) -> CollectiveColumns:
        """Return the calls that returned and those in flight (``RECORD`` and ``OPEN_CALL`` rows), in the order of
        their start.

        ``offset_ns`` turns the programs' times into UTC.
        """
        records = records[np.argsort(records["start_ns"], kind="stable")]
        open_calls = open_calls[np.argsort(open_calls["start_ns"], kind="stable")]
        return CollectiveColumns(
            communicator=self._communicators(records),
            operation=[self._functions[i][1] for i in records["function"].tolist()],
            call_sequence=records["sequence"].astype(np.int64),
            payload_bytes=records["bytes"].astype(np.int64),
            call_start_ns=records["start_ns"].astype(np.int64) + offset_ns,
            call_end_ns=records["end_ns"].astype(np.int64) + offset_ns,
            return_code=records["return_code"].astype(np.int64),
            open_communicator=self._communicators(open_calls),
            open_operation=[self._functions[i][1] for i in open_calls["function"].tolist()],
            open_call_sequence=open_calls["sequence"].astype(np.int64),
            open_call_start_ns=open_calls["start_ns"].astype(np.int64) + offset_ns,
        )

    def _communicators(self, calls: NDArray[Any]) -> list[str]:
        names = []
        for function, address in zip(calls["function"].tolist(), calls["communicator"].tolist(), strict=True):
            layer, _, family = self._functions[function]
            family = family or layer
            key = (family, address)
            if key not in self._names:
                self._names[key] = self._name(family, address)
            names.append(self._names[key])
        return names

    def _name(self, family: str, address: int) -> str:
        if not address:
            return family
        if address & COMMUNICATOR_NAMED:
            return f"{family}/{address ^ COMMUNICATOR_NAMED:016x}"
        number = self._counts.get(family, 0)
        self._counts[family] = number + 1
        return f"{family}/{number}"
