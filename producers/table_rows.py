"""The rows of a long table, CSV or Parquet, read in blocks and checked column by column.

Columns ``time_s, rank, metric, value`` and, if there, ``job, node, group, phase``; the order of the columns is free,
further ones are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eacgm.errors import InputError
from eacgm.events import PHASES, FloatArray, IntArray
from eacgm.producers.table_csv import csv_blocks

REQUIRED = ("time_s", "rank", "metric", "value")
OPTIONAL = ("job", "node", "group", "phase")
#: rows of Parquet read at once
BLOCK_ROWS = 65_536
#: the year 2200: larger is not seconds
MAX_TIME_SECONDS = 7_258_118_400.0
MAX_RANK = 1_000_000
#: a value that is larger than any reading of anything: squares and sums of squares must stay finite
MAX_VALUE = 1e30
#: metrics of one table; more means that readings stand where names belong
MAX_METRICS = 10_000
MAX_TEXT_CHARACTERS = 200

TextArray = NDArray[np.object_]
Columns = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block of rows stands: its file, and the line (CSV) or row (Parquet) of its first one."""

    path: str
    unit: str
    first: int

    def error(self, index: int, message: str) -> InputError:
        """Return the error that names this row."""
        return InputError(message, path=self.path, place=f"{self.unit} {self.first + index}")


@dataclass(frozen=True, slots=True)
class Rows:
    """Checked rows, one entry a row in every column.

    ``time_s`` seconds since the Unix epoch, ``rank`` >= 0, ``value`` at most ``MAX_VALUE`` in size, ``metric`` not
    empty; the other columns are None where the table has none.
    """

    time_s: FloatArray
    rank: IntArray
    metric: TextArray
    value: FloatArray
    job: TextArray | None = None
    node: TextArray | None = None
    group: TextArray | None = None
    phase: TextArray | None = None


def read_rows(path: Path) -> Iterator[tuple[Rows, Place]]:
    """Yield a table's rows in blocks of bounded size, with where they stand.

    Parquet is told by its first bytes, gzip too; all else is CSV. Raises ``InputError`` with file and line for whatever
    cannot be read.
    """
    metrics: set[str] = set()
    empty = True
    for columns, place in _blocks(path):
        if columns["time_s"]:
            empty = False
            yield _checked(columns, place, metrics), place
    if empty:
        raise InputError("has a header and no rows; expected readings", path=str(path))


def _blocks(path: Path) -> Iterator[tuple[Columns, Place]]:
    try:
        if not (path.is_file() or path.is_dir()) and path.exists():
            message = "is no ordinary file, and a table is opened twice; expected a file (write the pipe to one first)"
            raise InputError(message, path=str(path))
        with path.open("rb") as handle:
            magic = handle.read(4)
    except OSError as error:
        message = f"cannot be read ({error.strerror}); expected a table (CSV or Parquet)"
        raise InputError(message, path=str(path)) from None
    if not magic:
        raise InputError("is empty; expected a header and rows of readings", path=str(path))
    if magic == b"PAR1":
        yield from _parquet_blocks(path)
        return
    for names, columns, line in csv_blocks(path, gzipped=magic[:2] == b"\x1f\x8b"):
        _check_header(names, str(path))
        yield columns, Place(str(path), "line", line)


def _check_header(names: Sequence[str], path: str) -> None:
    missing = [name for name in REQUIRED if name not in names]
    twice = [name for name in REQUIRED + OPTIONAL if names.count(name) > 1]
    if missing:
        found = ", ".join(names[:12])[:120] or "none"
        message = f"lacks the column {', '.join(missing)}; expected {', '.join(REQUIRED)} (found: {found})"
        raise InputError(message, path=path, place="line 1")
    if twice:
        raise InputError(f"has the column {twice[0]} twice; expected it once", path=path, place="line 1")


def _parquet_blocks(path: Path) -> Iterator[tuple[Columns, Place]]:
    import pyarrow
    import pyarrow.parquet

    row = 1
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = list(file.schema_arrow.names)
            _check_header(names, str(path))
            wanted = [name for name in names if name in REQUIRED + OPTIONAL]
            for batch in file.iter_batches(batch_size=BLOCK_ROWS, columns=wanted):
                columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
                yield columns, Place(str(path), "row", row)
                row += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        message = f"is no readable Parquet ({' '.join(str(error).split())[:200]})"
        raise InputError(message, path=str(path), place=f"after row {row - 1}") from None


def _checked(columns: Columns, place: Place, metrics: set[str]) -> Rows:
    cells = columns["time_s"]
    time_s = _numbers(cells, place, "time_s", "seconds since 1970")
    _refuse(~((time_s >= 0) & (time_s <= MAX_TIME_SECONDS)), cells, place, "time_s", "seconds since 1970")
    cells = columns["rank"]
    rank = _numbers(cells, place, "rank", "a whole number")
    wrong = ~((rank >= 0) & (rank <= MAX_RANK) & (rank == np.floor(rank)))
    _refuse(wrong, cells, place, "rank", f"a whole number from 0 to {MAX_RANK:,}")
    cells = columns["value"]
    finite = f"a finite number up to {MAX_VALUE:g} (leave out what was not read)"
    value = _numbers(cells, place, "value", finite)
    _refuse(~(np.abs(value) <= MAX_VALUE), cells, place, "value", finite)
    _check_metrics(columns["metric"], place, metrics)
    return Rows(
        time_s=time_s,
        rank=rank.astype(np.int64),
        metric=np.array(columns["metric"], dtype=object),
        value=value,
        job=_texts(columns.get("job"), place, "job"),
        node=_texts(columns.get("node"), place, "node"),
        group=_texts(columns.get("group"), place, "group"),
        phase=_phases(columns.get("phase"), place),
    )


def _numbers(cells: Sequence[Any], place: Place, name: str, expected: str) -> FloatArray:
    """Convert a whole column at once; look for the culprit cell only when that fails."""
    try:
        kinds = set(map(type, cells))
        if bool in kinds or (str in kinds and "_" in "".join(cells)):
            raise ValueError
        return np.fromiter(map(float, cells), dtype=np.float64, count=len(cells))
    except (TypeError, ValueError):
        index = next(index for index, cell in enumerate(cells) if not _is_number(cell))
        raise place.error(index, f"{name} is {_quote(cells[index])}; expected {expected}") from None


def _is_number(cell: Any) -> bool:
    """Tell what a table means by a number: not ``1_000``, which ``float`` takes, nor Parquet's booleans."""
    if isinstance(cell, bool) or (isinstance(cell, str) and "_" in cell):
        return False
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True


def _refuse(wrong: NDArray[np.bool_], cells: Sequence[Any], place: Place, name: str, expected: str) -> None:
    if wrong.any():
        index = int(np.argmax(wrong))
        raise place.error(index, f"{name} is {_quote(cells[index])}; expected {expected}")


def _check_metrics(cells: Sequence[Any], place: Place, known: set[str]) -> None:
    # in the order of the rows: the first culprit is the one that is told
    for name in [cell for cell in dict.fromkeys(cells) if cell not in known]:
        if not _is_text(name) or not name.strip():
            message = f"metric is {_quote(name)}; expected a name of 1 to {MAX_TEXT_CHARACTERS} printable characters"
            raise place.error(cells.index(name), message)
        known.add(name)
        if len(known) > MAX_METRICS:
            message = f"more than {MAX_METRICS:,} metrics; expected names in the column metric"
            raise place.error(cells.index(name), message)


def _texts(cells: Sequence[Any] | None, place: Place, name: str) -> TextArray | None:
    if cells is None:
        return None
    distinct = set(cells)
    for cell in distinct - {None}:
        if not _is_text(cell):
            message = f"{name} is {_quote(cell)}; expected text of at most {MAX_TEXT_CHARACTERS} printable characters"
            raise place.error(cells.index(cell), message)
    return np.array([cell or "" for cell in cells] if None in distinct else cells, dtype=object)


def _phases(cells: Sequence[Any] | None, place: Place) -> TextArray | None:
    """Convert the column of phases: another word than ours would pass for something else than training."""
    texts = _texts(cells, place, "phase")
    told = [] if texts is None else texts.tolist()
    for cell in dict.fromkeys(told):
        if cell and cell not in PHASES:
            raise place.error(told.index(cell), f"phase is {_quote(cell)}; expected {', '.join(PHASES)} or none")
    return texts


def _is_text(cell: Any) -> bool:
    return isinstance(cell, str) and len(cell) <= MAX_TEXT_CHARACTERS and cell.isprintable()


def _quote(cell: Any) -> str:
    text = repr(cell)
    return "empty" if cell in ("", None) else text if len(text) <= 60 else text[:57] + "..."
