"""CSV text, plain or gzipped, as columns of cells: read in blocks of whole lines, no list per row."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator
from operator import methodcaller
from pathlib import Path
from typing import IO

from eacgm.errors import InputError

#: characters read at once
BLOCK_CHARACTERS = 2 * 1024 * 1024
#: a longer line is no row of a table, and is not read to its end
MAX_LINE_CHARACTERS = 65_536

Columns = dict[str, list[str]]


def csv_blocks(path: Path, *, gzipped: bool) -> Iterator[tuple[list[str], Columns, int]]:
    """Yield the header's names, the cells of a block by column, and the line of the block's first row.

    The first block may have no rows. Raises ``InputError`` with file and line where the text cannot be read.
    """
    place = "line 1"
    try:
        with _open_text(path, gzipped) as handle:
            header = handle.readline(MAX_LINE_CHARACTERS)
            names = [name.strip() for name in next(csv.reader([header]), [])]
            yield names, {name: [] for name in names}, 2
            line = 2
            for text in _whole_lines(handle):
                lines = text.split("\n")
                if len(longest := max(lines, key=len)) > MAX_LINE_CHARACTERS:
                    where = f"line {line + lines.index(longest)}"
                    raise InputError("is far too long for a row of a table", path=str(path), place=where)
                place = f"after line {line - 1}"
                yield names, _columns(names, text, lines, line, str(path)), line
                line += len(lines)
                place = f"after line {line - 1}"
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        message = f"the gzip data is damaged or breaks off ({error}); expected a whole file"
        raise InputError(message, path=str(path), place=place) from None
    except UnicodeDecodeError as error:
        message = f"is not UTF-8 text ({error.reason}); expected CSV"
        raise InputError(message, path=str(path), place=place) from None
    except csv.Error as error:
        raise InputError(f"is no CSV ({error})", path=str(path), place=place) from None


def _open_text(path: Path, gzipped: bool) -> IO[str]:
    if gzipped:
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return path.open("r", encoding="utf-8-sig")


def _whole_lines(handle: IO[str]) -> Iterator[str]:
    """Yield the text in blocks that end with a line, without the last line break."""
    rest = ""
    while piece := handle.read(BLOCK_CHARACTERS):
        head, break_, tail = piece.rpartition("\n")
        if break_:
            yield rest + head
            rest = tail
        else:
            rest += piece
            if len(rest) > MAX_LINE_CHARACTERS:
                break  # no line of a table: given on as it is, to be refused with its place
    rest = rest.rstrip("\n")
    if rest:
        yield rest


def _columns(names: list[str], text: str, lines: list[str], line: int, path: str) -> Columns:
    width = len(names)
    if '"' in text:
        rows = _quoted_rows(lines, line, path)
        widths = [len(row) for row in rows]
        cells = [cell for row in rows for cell in row]
    else:
        widths = [count + 1 for count in map(methodcaller("count", ","), lines)]
        cells = text.replace("\n", ",").split(",")
    if set(widths) != {width}:
        index = next(index for index, found in enumerate(widths) if found != width)
        message = f"has {widths[index]} cells; expected {width}, as the header has"
        raise InputError(message, path=path, place=f"line {line + index}")
    return {name: cells[index::width] for index, name in enumerate(names)}


def _quoted_rows(lines: list[str], line: int, path: str) -> list[list[str]]:
    rows = list(csv.reader(text + "\n" for text in lines))
    for index, row in enumerate(rows):
        if any("\n" in cell for cell in row):
            message = "a quoted cell holds a line break; expected one row a line"
            raise InputError(message, path=path, place=f"line {line + index}")
    return rows
