"""The kernel's own calls: bpf(2), perf_event_open(2) and pidfds, through ctypes.

Everything that holds on to something in the kernel is a file descriptor here: closing it detaches, and so does the
death of the process, ``kill -9`` included. Source: include/uapi/linux/{bpf,perf_event,pidfd}.h.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eacgm.errors import ProbeError, UnsupportedError

_NUMBERS = {"x86_64": (321, 298), "aarch64": (280, 241)}

MAP_CREATE, MAP_LOOKUP, MAP_UPDATE, MAP_DELETE = 0, 1, 2, 3
OBJ_GET_INFO = 15
MAP_LOOKUP_BATCH = 24
LINK_CREATE = 28

BPF_NOEXIST = 1

#: BPF_PERF_EVENT, BPF_TRACE_UPROBE_MULTI of enum bpf_attach_type
ATTACH_PERF_EVENT, ATTACH_UPROBE_MULTI = 41, 48
_UPROBE_MULTI_RETURN = 1

_PERF_TYPE_TRACEPOINT = 2
_PERF_FLAG_FD_CLOEXEC = 8
_PIDFD_GET_INFO = 0xC0000000 | (64 << 16) | (0xFF << 8) | 11
_PIDFD_INFO_EXIT = 1 << 3

_libc = ctypes.CDLL(None, use_errno=True)


class _MapCreate(ctypes.Structure):
    _fields_ = [
        ("map_type", ctypes.c_uint32),
        ("key_bytes", ctypes.c_uint32),
        ("value_bytes", ctypes.c_uint32),
        ("entries", ctypes.c_uint32),
    ]


class _MapElement(ctypes.Structure):
    _fields_ = [
        ("map_fd", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
        ("key", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
    ]


class _MapBatch(ctypes.Structure):
    _fields_ = [
        ("in_batch", ctypes.c_uint64),
        ("out_batch", ctypes.c_uint64),
        ("keys", ctypes.c_uint64),
        ("values", ctypes.c_uint64),
        ("count", ctypes.c_uint32),
        ("map_fd", ctypes.c_uint32),
        ("elem_flags", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
    ]


class _Info(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_uint32), ("length", ctypes.c_uint32), ("info", ctypes.c_uint64)]


class _UprobeMulti(ctypes.Structure):
    _fields_ = [
        ("prog_fd", ctypes.c_uint32),
        ("target_fd", ctypes.c_uint32),
        ("attach_type", ctypes.c_uint32),
        ("link_flags", ctypes.c_uint32),
        ("path", ctypes.c_uint64),
        ("offsets", ctypes.c_uint64),
        ("ref_ctr_offsets", ctypes.c_uint64),
        ("cookies", ctypes.c_uint64),
        ("count", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
    ]


class _PerfLink(ctypes.Structure):
    _fields_ = [
        ("prog_fd", ctypes.c_uint32),
        ("target_fd", ctypes.c_uint32),
        ("attach_type", ctypes.c_uint32),
        ("link_flags", ctypes.c_uint32),
        ("cookie", ctypes.c_uint64),
    ]


class _PerfAttributes(ctypes.Structure):
    """struct perf_event_attr up to PERF_ATTR_SIZE_VER5; the fields in between stay 0."""

    _fields_ = [
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_events", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
        ("config2", ctypes.c_uint64),
        ("rest", ctypes.c_uint64 * 5),
    ]


def _system_calls() -> tuple[int, int]:
    try:
        return _NUMBERS[platform.machine()]
    except KeyError:
        known = ", ".join(_NUMBERS)
        raise UnsupportedError(f"machine type {platform.machine()} is not supported; expected one of {known}") from None


def _bpf(command: int, attribute: ctypes.Structure) -> int:
    """Return what bpf(2) returns; raises ``OSError`` with its errno."""
    size = ctypes.sizeof(attribute)
    result: int = _libc.syscall(_system_calls()[0], command, ctypes.byref(attribute), size)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _address(array: NDArray[np.generic]) -> int:
    return int(array.ctypes.data)


def create_hash_map(key_bytes: int, value_bytes: int, entries: int) -> int:
    """Return the descriptor of a new hash map; raises ``OSError``."""
    hash_type = 1
    request = _MapCreate(map_type=hash_type, key_bytes=key_bytes, value_bytes=value_bytes, entries=entries)
    return _bpf(MAP_CREATE, request)


def map_shape(fd: int) -> tuple[int, int, int]:
    """Return a map's key size and value size in bytes, and its capacity in entries."""
    info = np.zeros(32, dtype=np.uint32)
    _bpf(OBJ_GET_INFO, _Info(fd=fd, length=info.nbytes, info=_address(info)))
    return int(info[2]), int(info[3]), int(info[4])


def map_update(fd: int, key: NDArray[np.generic], value: NDArray[np.generic], flags: int = 0) -> None:
    """Write one entry; raises ``OSError`` (``FileExistsError`` with BPF_NOEXIST)."""
    _bpf(MAP_UPDATE, _MapElement(map_fd=fd, key=_address(key), value=_address(value), flags=flags))


def map_delete(fd: int, key: NDArray[np.generic]) -> bool:
    """Remove one entry; False if there was none."""
    try:
        _bpf(MAP_DELETE, _MapElement(map_fd=fd, key=_address(key)))
    except FileNotFoundError:
        return False
    return True


def map_lookup(fd: int, key: NDArray[np.generic], value: NDArray[np.generic]) -> bool:
    """Read one entry into ``value``; False if there is none."""
    try:
        _bpf(MAP_LOOKUP, _MapElement(map_fd=fd, key=_address(key), value=_address(value)))
    except FileNotFoundError:
        return False
    return True


def map_lookup_batch(fd: int, keys: NDArray[np.generic], values: NDArray[np.generic]) -> int:
    """Fill both arrays with the entries of a hash map; return how many there were.

    The arrays must hold the map's capacity. An entry is at most seen once; one added meanwhile may be missed.
    """
    done = 0
    cursor = np.zeros(2, dtype=np.uint64)
    first = True
    while done < len(keys):
        request = _MapBatch(
            in_batch=0 if first else _address(cursor),
            out_batch=_address(cursor),
            keys=_address(keys[done:]),
            values=_address(values[done:]),
            count=len(keys) - done,
            map_fd=fd,
        )
        first = False
        try:
            _bpf(MAP_LOOKUP_BATCH, request)
        except FileNotFoundError:
            return done + int(request.count)
        done += int(request.count)
    return done


def link_uprobes(
    program: int,
    path: str,
    offsets: Sequence[int],
    cookies: Sequence[int],
    semaphores: Sequence[int],
    *,
    at_return: bool,
) -> int:
    """Attach a program to file offsets of one file, in all processes; return the link's descriptor.

    ``semaphores`` are USDT reference counters as file offsets, 0 where there is none. Kernel 6.6 or newer. Raises
    ``OSError``.
    """
    where = ctypes.create_string_buffer(os.fsencode(path))
    at = np.array(offsets, dtype=np.uint64)
    what = np.array(cookies, dtype=np.uint64)
    counters = np.array(semaphores, dtype=np.uint64)
    return _bpf(
        LINK_CREATE,
        _UprobeMulti(
            prog_fd=program,
            attach_type=ATTACH_UPROBE_MULTI,
            path=ctypes.addressof(where),
            offsets=_address(at),
            ref_ctr_offsets=_address(counters) if counters.any() else 0,
            cookies=_address(what),
            count=len(at),
            flags=_UPROBE_MULTI_RETURN if at_return else 0,
        ),
    )


def _perf_event(attributes: _PerfAttributes) -> int:
    attributes.size = ctypes.sizeof(attributes)
    arguments = (ctypes.byref(attributes), -1, 0, -1, _PERF_FLAG_FD_CLOEXEC)
    result: int = _libc.syscall(_system_calls()[1], *arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _link_event(program: int, event: int, cookie: int) -> tuple[int, int]:
    try:
        link = _bpf(
            LINK_CREATE, _PerfLink(prog_fd=program, target_fd=event, attach_type=ATTACH_PERF_EVENT, cookie=cookie)
        )
    except OSError:
        os.close(event)
        raise
    return link, event


def link_uprobe_event(
    program: int, path: str, offset: int, cookie: int, semaphore: int, *, at_return: bool
) -> tuple[int, int]:
    """Attach a program to one file offset by a perf event, for kernels older than 6.6 (5.15 at least).

    Returns the descriptors that hold it: the link's and the event's. Raises ``OSError``.
    """
    kind = int(_read("/sys/bus/event_source/devices/uprobe/type"))
    bit = int(_read("/sys/bus/event_source/devices/uprobe/format/retprobe").removeprefix("config:"))
    where = ctypes.create_string_buffer(os.fsencode(path))
    config = (1 << bit if at_return else 0) | (semaphore << 32)
    attributes = _PerfAttributes(type=kind, config=config, config1=ctypes.addressof(where), config2=offset)
    return _link_event(program, _perf_event(attributes), cookie)


def link_tracepoint(program: int, identifier: int) -> tuple[int, int]:
    """Attach a program to a tracepoint (``identifier`` as in tracefs); return the link's and the event's fd."""
    attributes = _PerfAttributes(type=_PERF_TYPE_TRACEPOINT, config=identifier, sample_period=1)
    return _link_event(program, _perf_event(attributes), 0)


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError as error:
        raise ProbeError(f"{path}: cannot be read ({error.strerror}); expected a kernel with uprobe events") from None


def exit_status(pidfd: int) -> int | None:
    """Return the wait status of the process behind a pidfd, None while it runs or where the kernel does not tell.

    Kernel 6.15 or newer; it works after the process has been reaped, by whomever.
    """
    # struct pidfd_info: mask u64, cgroupid u64, 11 x u32 of ids, exit_code s32 at byte 60
    info = bytearray(64)
    info[0:8] = _PIDFD_INFO_EXIT.to_bytes(8, "little")
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info, True)
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.ENOTTY, errno.EINVAL, errno.EREMOTE):
            return None
        raise
    if not int.from_bytes(info[0:8], "little") & _PIDFD_INFO_EXIT:
        return None
    return int.from_bytes(info[60:64], "little", signed=True)
