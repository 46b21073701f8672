"""Standard input, output and error as the commands find them: open, and able to take any text.

A program started without one of them would give its number to the next file it opens, and a library that complains
on standard error would then write into that file.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO


def prepare() -> None:
    """Put the null device where a standard stream is closed, and escapes where a stream's encoding lacks a character.

    For the program's start: nothing else may have been opened before.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
    sys.stdout = _able(sys.stdout, 1)
    sys.stderr = _able(sys.stderr, 2)


def _able(stream: TextIO | None, number: int) -> TextIO:
    if stream is None:  # Python's word for: was closed when we began
        return os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    if getattr(stream, "errors", None) in ("strict", "surrogateescape"):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]
    return stream
