"""The files that a process maps executable, each by a path that reaches the same inode."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from eacgm.errors import ProbeError

_MAPPING = re.compile(r"^([0-9a-f]+-[0-9a-f]+) ..x. \S+ (\S+) (\d+) +(/.*)$", re.MULTILINE)

#: a file by its device and its number on it
Inode = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Library:
    """A file that a process has mapped executable: its own name for it, and a path by which we reach the same inode."""

    name: str
    path: str
    inode: Inode


def mapped_libraries(pid: int, patterns: Sequence[re.Pattern[str]]) -> list[Library]:
    """Return the files that a process maps executable and whose names match one of the patterns.

    Raises ``ProbeError`` where the process is gone or may not be read.
    """
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
    except OSError as error:
        raise ProbeError(f"process {pid}: its mappings cannot be read ({error.strerror}); is it running?") from None
    found: dict[Inode, Library] = {}
    for addresses, _device, number, path in _MAPPING.findall(text):
        path = path.removesuffix(" (deleted)")
        name = os.path.basename(path)
        if not any(pattern.fullmatch(name) for pattern in patterns):
            continue
        library = _reach(pid, path, name, int(number), addresses)
        if library is not None:
            found.setdefault(library.inode, library)
    return list(found.values())


def _reach(pid: int, path: str, name: str, number: int, addresses: str) -> Library | None:
    """Find the mapped inode: by its path in the process's root, else (replaced, deleted) by the mapping itself."""
    for candidate in (f"/proc/{pid}/root{path}", f"/proc/{pid}/map_files/{addresses}"):
        try:
            status = os.stat(candidate)
        except OSError:
            continue
        if status.st_ino == number or "map_files" in candidate:
            return Library(name, candidate, (status.st_dev, status.st_ino))
    return None
