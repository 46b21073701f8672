"""Errors of one process's calls, by what the functions returned."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eacgm.producers.observation import CallColumns


class ErrorAccount:
    """Keeps the totals of the collection before; ``functions`` is (layer, function, family) by id, and may grow."""

    def __init__(self, functions: list[tuple[str, str, str]]) -> None:
        self._functions = functions
        self._last: dict[tuple[int, int], int] = {}

    def collect(self, keys: NDArray[Any], totals: NDArray[Any], calls: CallColumns) -> None:
        """Fill the ``error_*`` columns of an interval's calls from the process's entries of the map ``error_codes``.

        An error whose function has no row in ``calls`` yet is told the next time.
        """
        grown: dict[tuple[int, int], int] = {}
        rows = {name: row for row, name in enumerate(zip(calls.layer, calls.function, strict=True))}
        entries = zip(keys["function"].tolist(), keys["code"].tolist(), totals.tolist(), strict=True)
        for function, code, total in entries:
            row = rows.get(self._functions[function][:2])
            growth = total - self._last.get((function, code), 0)
            if row is None or growth <= 0:
                continue
            self._last[function, code] = total
            grown[row, code] = grown.get((row, code), 0) + growth
        table = np.array([(row, code, count) for (row, code), count in sorted(grown.items())], dtype=np.int64)
        calls.error_row, calls.error_code, calls.error_count = table.reshape(-1, 3).T
