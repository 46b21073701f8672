"""What a window's calls of traced functions say: steps, collections, launches, waits, copies, calls in flight."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from eacgm.events import CallsEvent, FloatArray
from eacgm.streams.catalogue import CATALOGUE
from eacgm.streams.placed import Placed

#: columns of ``CallReadings.table``
TOLD = (
    "backward_count",
    "backward_seconds",
    "optimizer_count",
    "optimizer_seconds",
    "gc_count",
    "gc_seconds",
    "launch_count",
    "launch_seconds",
    "sync_count",
    "sync_seconds",
    "memcpy_count",
    "memcpy_seconds",
    "memcpy_bytes",
    "cuda_count",
    "cuda_errors",
    "call_count",
)
_AT = {name: index for index, name in enumerate(TOLD)}
_UNIT = np.array([1e-9 if name.endswith("_seconds") else 1.0 for name in TOLD])

#: (layer, pattern of whole function names, prefix of the columns that the calls add to)
_KINDS = (
    # DistributedDataParallel's own calls end in the same word and surround each backward: they are no steps
    ("pytorch", re.compile(r"backward"), "backward"),
    ("pytorch", re.compile(r".*optimizer.*"), "optimizer"),
    ("python", re.compile(r"gc"), "gc"),
    ("cuda", re.compile(r".*Launch.*"), "launch"),
    ("cuda", re.compile(r".*Synchronize.*"), "sync"),
    ("cuda", re.compile(r".*Memcpy.*"), "memcpy"),
)
#: (column of the table, column of the frame, column that says whether there is anything to tell, how it is told)
_COLUMNS = (
    ("backward_seconds", "backward_seconds", "backward_count", "mean"),
    ("optimizer_seconds", "optimizer_seconds", "optimizer_count", "mean"),
    ("gc_seconds", "gc_seconds", "gc_count", "total"),
    ("sync_seconds", "cuda_sync_seconds", "sync_count", "total"),
    ("memcpy_seconds", "cuda_memcpy_seconds", "memcpy_count", "total"),
    ("cuda_errors", "cuda_errors", "cuda_count", "total"),
    ("backward_count", "step_count", "backward_count", "counter"),
    ("gc_count", "gc_count", "gc_count", "counter"),
    ("launch_count", "cuda_launches", "launch_count", "counter"),
    ("launch_seconds", "cuda_launch_seconds", "launch_count", "counter"),
    ("memcpy_bytes", "cuda_memcpy_bytes", "memcpy_count", "counter"),
)
_ALLOCATED = list(CATALOGUE).index("cuda_allocated_bytes")
_SOURCES = np.array([_AT[source] for source, _, _, _ in _COLUMNS])
_TARGETS = np.array([list(CATALOGUE).index(target) for _, target, _, _ in _COLUMNS])
_COUNTED_BY = np.array([_AT[count] for _, _, count, _ in _COLUMNS])
_MEANS = np.array([index for index, row in enumerate(_COLUMNS) if row[3] == "mean"])
_SCALED = np.array([index for index, row in enumerate(_COLUMNS) if row[3] == "counter"])
#: functions remembered; further ones count as calls and nothing else
MOST_FUNCTIONS = 4096


class CallReadings:
    """Turns call events into a table ``(n_ranks, len(TOLD))``; remembers which function means what."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, str], int] = {}
        self._rows_of_names: dict[tuple[str, ...], FloatArray] = {}
        # (n_functions, measures: count, seconds, bytes, errors; len(TOLD)), flattened to two dimensions
        self._meaning = np.zeros((0, 4, len(TOLD)))

    def table(self, placed: Placed[CallsEvent], n_ranks: int) -> tuple[FloatArray, FloatArray]:
        """Return what was counted per rank, and the age of its oldest call in flight.

        The table is of shape ``(n_ranks, len(TOLD))``, zeros where nothing was counted; ages are of shape
        ``(n_ranks,)`` in seconds, by each process's last message, NaN where there was none.
        """
        events, rows = placed.events, placed.rows
        age = np.full(n_ranks, np.nan)
        if not events:
            return np.zeros((n_ranks, len(TOLD))), age
        functions = np.concatenate([self._ids(event) for event in events])
        sizes = [len(event.function) for event in events]
        cell = np.repeat(rows, sizes) * len(self._functions) + functions
        n_cells = n_ranks * len(self._functions)
        measures = (
            np.concatenate([event.count for event in events]),
            np.concatenate([event.total_ns for event in events]),
            np.concatenate([event.payload_bytes for event in events]),
            np.concatenate([event.errors for event in events]),
        )
        counted = np.stack([np.bincount(cell, weights=m, minlength=n_cells) for m in measures])
        by_rank = counted.reshape(4, n_ranks, -1).transpose(1, 2, 0).reshape(n_ranks, -1)
        # the last message of a process says what is in flight at the window's end
        oldest_ns = np.zeros(len(events), dtype=np.int64)
        ages_ns = np.concatenate([event.open_age_ns for event in events])
        if ages_ns.any():
            np.maximum.at(oldest_ns, np.repeat(np.arange(len(events)), sizes), ages_ns)
        age[rows] = oldest_ns * 1e-9
        # whole numbers until here: their sums are exact in any order
        return by_rank @ self._meaning.reshape(-1, len(TOLD)) * _UNIT, age

    def _ids(self, event: CallsEvent) -> Any:
        key = (*event.layer, *event.function)
        ids = self._rows_of_names.get(key)
        if ids is None:
            if len(self._rows_of_names) >= MOST_FUNCTIONS:
                self._rows_of_names.clear()
            names = zip(event.layer, event.function, strict=True)
            ids = np.array([self._id(layer, function) for layer, function in names], dtype=np.int64)
            self._rows_of_names[key] = ids
        return ids

    def _id(self, layer: str, function: str) -> int:
        name = (layer, function)
        if name not in self._functions and len(self._functions) >= MOST_FUNCTIONS:
            name = ("", "")
        if name not in self._functions:
            self._functions[name] = len(self._functions)
            self._meaning = np.concatenate((self._meaning, _meaning(*name)[None]))
        return self._functions[name]


def _meaning(layer: str, function: str) -> FloatArray:
    """Return which columns a function's count, seconds, bytes and errors add to, shape ``(4, len(TOLD))``."""
    weights = np.zeros((4, len(TOLD)))
    weights[0, _AT["call_count"]] = 1.0
    if layer == "cuda":
        weights[0, _AT["cuda_count"]] = 1.0
        weights[3, _AT["cuda_errors"]] = 1.0
    for kind_layer, pattern, prefix in _KINDS:
        if layer == kind_layer and pattern.fullmatch(function):
            weights[0, _AT[f"{prefix}_count"]] = 1.0
            weights[1, _AT[f"{prefix}_seconds"]] = 1.0
            if prefix == "memcpy":
                weights[2, _AT["memcpy_bytes"]] = 1.0
    return weights


def fill_columns(values: FloatArray, table: FloatArray, scale: FloatArray) -> None:
    """Fill a frame's columns of calls from ``CallReadings.table``; ``scale`` per rank brings counters to the window.

    A mean or total of calls of which none returned, and a counter of what never happened, stay NaN.
    """
    counted = table[:, _COUNTED_BY] > 0
    told = table[:, _SOURCES]
    told[:, _SCALED] *= scale[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        told[:, _MEANS] /= table[:, _COUNTED_BY[_MEANS]]
    values[:, _TARGETS] = np.where(counted, told, np.nan)


def fill_allocated(values: FloatArray, placed: Placed[CallsEvent]) -> None:
    """Fill a frame's column of device memory from each process's last message that tells it."""
    for event, row in zip(placed.events, placed.rows.tolist(), strict=True):
        if event.cuda_allocated_bytes is not None:
            values[row, _ALLOCATED] = event.cuda_allocated_bytes


def column(table: FloatArray, name: str) -> FloatArray:
    """Return one column of ``CallReadings.table``, of shape ``(n_ranks,)``."""
    found: FloatArray = table[:, _AT[name]]
    return found
