"""Readings of many events onto the rows of their ranks; events sorted by row, NaN being what was not told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eacgm.events import Event, FloatArray, IntArray


def readings(read: Callable[[Event], tuple[Any, ...]], events: Sequence[Event], n_fields: int) -> FloatArray:
    """Return what ``read`` takes from each event, of shape ``(n_events, n_fields)``; None becomes NaN."""
    flat = chain.from_iterable(map(read, events))
    return np.fromiter(flat, dtype=np.float64, count=len(events) * n_fields).reshape(-1, n_fields)


def _starts(rows: IntArray) -> IntArray | None:
    """Return where each row's events begin, None if no row has more than one."""
    change = rows[1:] != rows[:-1]
    return None if change.all() else np.concatenate(([0], np.flatnonzero(change) + 1))


def sums(rows: IntArray, values: FloatArray, n_ranks: int) -> FloatArray:
    """Return the sum per row of what was told, of shape ``(n_ranks, n_columns)``, NaN where nothing was.

    ``rows`` of shape ``(n_events,)`` ascends, ``values`` is of shape ``(n_events, n_columns)``.

    >>> sums(np.array([0, 0, 2]), np.array([[1.0], [2.0], [np.nan]]), 3).ravel().tolist()
    [3.0, nan, nan]
    """
    out = np.full((n_ranks, values.shape[1]), np.nan)
    if not rows.size:
        return out
    starts = _starts(rows)
    if starts is None:
        out[rows] = values
        return out
    told = ~np.isnan(values)
    total = np.add.reduceat(np.where(told, values, 0.0), starts, axis=0)
    out[rows[starts]] = np.where(np.logical_or.reduceat(told, starts, axis=0), total, np.nan)
    return out


def lasts(rows: IntArray, values: FloatArray, n_ranks: int) -> FloatArray:
    """Return the last value per row that was told, of shape ``(n_ranks, n_columns)``, NaN where none was.

    >>> lasts(np.array([0, 0, 1]), np.array([[1.0], [np.nan], [3.0]]), 3).ravel().tolist()
    [1.0, 3.0, nan]
    """
    out = np.full((n_ranks, values.shape[1]), np.nan)
    if not rows.size:
        return out
    starts = _starts(rows)
    if starts is None:
        out[rows] = values
        return out
    place = np.where(np.isnan(values), -1, np.arange(rows.size)[:, None])
    last = np.maximum.reduceat(place, starts, axis=0)
    picked = np.take_along_axis(values, np.maximum(last, 0), axis=0)
    out[rows[starts]] = np.where(last >= 0, picked, np.nan)
    return out


def largest(rows: IntArray, values: FloatArray, n_ranks: int) -> FloatArray:
    """Return the largest value per row that was told, shapes as in ``sums``; ``rows`` need not ascend.

    >>> largest(np.array([1, 0, 1]), np.array([[1.0], [2.0], [5.0]]), 3).ravel().tolist()
    [2.0, 5.0, nan]
    """
    out = np.full((n_ranks, values.shape[1]), -np.inf)
    np.maximum.at(out, rows, np.where(np.isnan(values), -np.inf, values))
    out[np.isneginf(out)] = np.nan
    return out


def counted(rows: IntArray, amounts: NDArray[Any], n_ranks: int) -> FloatArray:
    """Return the sum of ``amounts``, shape ``(n_events,)``, per row, 0 where there is none; rows in any order.

    >>> counted(np.array([2, 0, 2]), np.array([1.0, 2.0, 3.0]), 3).tolist()
    [2.0, 0.0, 4.0]
    """
    total: FloatArray = np.bincount(rows, weights=amounts, minlength=n_ranks).astype(np.float64, copy=False)
    return total


def ratio(total: NDArray[Any], count: NDArray[Any]) -> FloatArray:
    """Return ``total / count``, both of one shape, NaN where ``count`` is not above 0.

    >>> ratio(np.array([1.0, 2.0]), np.array([0, 4])).tolist()
    [nan, 0.5]
    """
    out = np.full(total.shape, np.nan)
    np.divide(total, count, out=out, where=count > 0)
    return out


def to_window(covered_seconds: FloatArray, window_seconds: float) -> FloatArray:
    """Return what brings a counter of so many seconds to one window; 1 for what was seen only in part of it.

    >>> to_window(np.array([2.0, 0.3]), 1.0).tolist()
    [0.5, 1.0]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(covered_seconds > 0.5 * window_seconds, window_seconds / covered_seconds, 1.0)
