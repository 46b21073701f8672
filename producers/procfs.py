"""What /proc tells of one process: cumulative readings, parsed from the kernel's text.

Every function takes the root folder, so that a copy of a /proc can stand in. Source: proc(5) and the kernel's
Documentation/filesystems/proc.rst. A file that is not there, or not ours to read, gives None.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from eacgm.errors import InputError

#: a /proc file longer than this is cut off
MAX_FILE_BYTES = 4 * 1024 * 1024
_CHUNK_BYTES = 65_536

_VM_LIB = re.compile(rb"^VmLib:\s+(\d+) kB", re.MULTILINE)

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Stat:
    """The part of ``/proc/PID/stat`` that is used.

    ``state`` is the kernel's letter (R, S, D, T, t, Z, X ...); ``cpu_ticks`` and ``start_ticks`` are in
    1/``TICKS_PER_SECOND`` s, the latter since boot; ``stack_start`` changes when the process executes another
    program; ``wait_status`` is a zombie's, as waitpid(2) would tell it.
    """

    pid: int
    command: str
    state: str
    parent: int
    major_faults: int
    cpu_ticks: int
    threads: int
    start_ticks: int
    rss_pages: int
    stack_start: int
    block_delay_ticks: int
    wait_status: int


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """One process's counters since it started, and its gauges now.

    ``io_*_bytes`` went to or came from storage, and include children that it has waited for; ``io_wait_seconds`` is
    the block I/O delay, None where the kernel does not account it (sysctl kernel.task_delayacct);
    ``run_queue_wait_seconds`` is by thread id, because the kernel forgets the wait of threads that have ended.
    """

    stat: Stat
    cpu_seconds: float
    major_faults: float
    rss_bytes: float
    threads: int
    stopped: bool
    io_wait_seconds: float | None
    io_read_bytes: float | None
    io_written_bytes: float | None
    run_queue_wait_seconds: dict[int, float] | None


def read_file(path: str) -> bytes | None:
    """Return a small kernel file's bytes, None if it is gone or may not be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    parts: list[bytes] = []
    room = MAX_FILE_BYTES
    try:
        # the kernel may stop at any record: only an empty read is the end
        while room > 0 and (chunk := os.read(descriptor, min(room, _CHUNK_BYTES))):
            parts.append(chunk)
            room -= len(chunk)
        return b"".join(parts)
    except OSError:
        # ESRCH: the process ended between open and read
        return None
    finally:
        os.close(descriptor)


def parse_stat(text: bytes) -> Stat:
    """Return the parsed line of ``/proc/PID/stat``; raises ``InputError`` for anything else.

    The command stands in brackets and may itself hold spaces and brackets, so the last bracket counts.
    """
    head, bracket, tail = text.rpartition(b")")
    pid, _, command = head.partition(b" (")
    words = tail.split()
    if not bracket or len(words) < 50:
        raise InputError(
            f"{text[:40]!r} is no process status; expected the 52 fields of proc(5)", path="/proc/PID/stat"
        )
    try:
        return Stat(
            pid=int(pid),
            command=command.decode("utf-8", "replace"),
            state=words[0].decode("ascii"),
            parent=int(words[1]),
            major_faults=int(words[9]),
            cpu_ticks=int(words[11]) + int(words[12]),
            threads=int(words[17]),
            start_ticks=int(words[19]),
            rss_pages=int(words[21]),
            stack_start=int(words[25]),
            block_delay_ticks=int(words[39]),
            wait_status=int(words[49]),
        )
    except ValueError:
        raise InputError(f"{text[:40]!r} holds a field that is no number", path="/proc/PID/stat") from None


def read_stat(root: str, pid: int) -> Stat | None:
    """Return a process's status line, None once the process is gone."""
    text = read_file(f"{root}/proc/{pid}/stat")
    return parse_stat(text) if text else None


def parse_fields(text: bytes | None) -> dict[str, int]:
    r"""Return ``name: number`` or ``name number`` lines as a dict; other lines are passed over.

    >>> parse_fields(b"read_bytes: 4096\nMemAvailable:  12 kB\nnr_throttled 3\nmax\n")
    {'read_bytes': 4096, 'MemAvailable': 12, 'nr_throttled': 3}
    """
    found: dict[str, int] = {}
    for line in (text or b"").splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isdigit():
            found[words[0].rstrip(b":").decode("ascii", "replace")] = int(words[1])
    return found


def executable_kib(root: str, pid: int) -> int | None:
    """Return how much executable memory a process maps beside its program: it changes when a library is loaded."""
    match = _VM_LIB.search(read_file(f"{root}/proc/{pid}/status") or b"")
    return int(match[1]) if match else None


def delay_accounting(root: str) -> bool:
    """Return whether the kernel accounts block I/O delays (sysctl kernel.task_delayacct)."""
    return (read_file(f"{root}/proc/sys/kernel/task_delayacct") or b"0").strip() == b"1"


def read_process(root: str, stat: Stat, *, delays: bool, scheduling: bool) -> ProcessReading:
    """Return a process's readings, given its status line; what has vanished meanwhile is None.

    ``delays``: block I/O delays are accounted here; ``scheduling``: read the run-queue wait of every thread, which
    costs a file per thread and is left out where the kernel tracer measures it anyway.
    """
    io = parse_fields(read_file(f"{root}/proc/{stat.pid}/io"))
    return ProcessReading(
        stat=stat,
        cpu_seconds=stat.cpu_ticks / TICKS_PER_SECOND,
        major_faults=float(stat.major_faults),
        rss_bytes=float(stat.rss_pages * PAGE_BYTES),
        threads=stat.threads,
        stopped=stat.state in "Tt",
        io_wait_seconds=stat.block_delay_ticks / TICKS_PER_SECOND if delays else None,
        io_read_bytes=_number(io.get("read_bytes")),
        io_written_bytes=_number(io.get("write_bytes")),
        run_queue_wait_seconds=_thread_waits(root, stat.pid) if scheduling else None,
    )


def _number(value: int | None) -> float | None:
    return None if value is None else float(value)


def _thread_waits(root: str, pid: int) -> dict[int, float] | None:
    folder = f"{root}/proc/{pid}/task"
    try:
        threads = os.listdir(folder)
    except OSError:
        return None
    waits: dict[int, float] = {}
    for thread in threads:
        # "on-CPU ns, waiting ns, slices"; absent without CONFIG_SCHED_INFO
        words = (read_file(f"{folder}/{thread}/schedstat") or b"").split()
        if len(words) == 3:
            waits[int(thread)] = int(words[1]) / 1e9
    return waits or None


#: readings that only grow, told as what they grew by in an interval
COUNTERS = ("cpu_seconds", "major_faults", "io_wait_seconds", "io_read_bytes", "io_written_bytes")


def grown(now: float | None, before: float | None) -> float | None:
    """Return by how much a counter grew; None if either reading is missing or it went backwards (it was reset).

    >>> grown(5.0, 3.0), grown(5.0, None), grown(1.0, 3.0)
    (2.0, None, None)
    """
    if now is None or before is None or now < before:
        return None
    return now - before


def changes(now: ProcessReading, before: ProcessReading | None) -> dict[str, float | None]:
    """Return what a process did between two readings, by the names of ``HostEvent``; never negative.

    With no earlier reading, or one of another process that had the same pid, everything is None.
    """
    if before is None or before.stat.start_ticks != now.stat.start_ticks:
        return dict.fromkeys((*COUNTERS, "run_queue_wait_seconds"))
    found = {name: grown(getattr(now, name), getattr(before, name)) for name in COUNTERS}
    waits, earlier = now.run_queue_wait_seconds, before.run_queue_wait_seconds
    if waits is None or earlier is None:
        found["run_queue_wait_seconds"] = None
    else:
        # a thread that is new has waited since it began, which was in this interval
        found["run_queue_wait_seconds"] = sum(max(0.0, wait - earlier.get(tid, 0.0)) for tid, wait in waits.items())
    return found
