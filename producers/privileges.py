"""What an agent may do: the capabilities that it needs, and how it gives up all others.

Capabilities belong to threads, and those of another thread cannot be changed. Source: capabilities(7), prctl(2),
include/uapi/linux/{capability,prctl}.h.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable

from eacgm.errors import ProbeError

#: name -> number of what an agent needs as long as it lives, as ranks come later and their libraries with them: BPF
#: loads programs and reads their maps, PERFMON attaches them, SYS_PTRACE reads /proc/PID/environ, io and root of other
#: users' processes, DAC_READ_SEARCH tracefs and libraries that only their owners may read, SYSLOG the GPUs' errors in
#: the kernel log
NEEDED = {"CAP_BPF": 39, "CAP_PERFMON": 38, "CAP_SYS_PTRACE": 19, "CAP_DAC_READ_SEARCH": 2, "CAP_SYSLOG": 34}
#: what includes most others on kernels that know no finer ones
SYS_ADMIN = 21
#: what is needed only where the user asks for it: to write into a folder of somebody else, to serve a port below 1024
OPTIONAL = {"CAP_DAC_OVERRIDE": 1, "CAP_NET_BIND_SERVICE": 10}

_VERSION_3 = 0x20080522
_SET_NO_NEW_PRIVILEGES = 38
_BOUNDING_DROP = 24
_AMBIENT, _AMBIENT_RAISE, _AMBIENT_CLEAR = 47, 2, 4
_SETPCAP = 8

_libc = ctypes.CDLL(None, use_errno=True)


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def held(kind: str = "CapEff") -> int:
    """Return this thread's capabilities as a bit mask; ``kind`` as in /proc/PID/status."""
    with open("/proc/thread-self/status", encoding="ascii", errors="replace") as file:
        return next(int(line.split()[1], 16) for line in file if line.startswith(f"{kind}:"))


def confine(also: Iterable[str] = ()) -> None:
    """Give up all capabilities but those needed and ``also``, for this thread and all that it starts, for good.

    What is not held is not gained. Without CAP_SETPCAP the bounding set stays as it is; nothing can come from it, as
    no_new_privs is set first. Raises ``ProbeError`` where the kernel refuses.
    """
    numbers = NEEDED | {name: OPTIONAL[name] for name in also}
    kept = sum(1 << number for number in numbers.values()) & held("CapPrm")
    _prctl(_SET_NO_NEW_PRIVILEGES, 1)
    if held() >> _SETPCAP & 1:
        bounding = held("CapBnd")
        for number in range(64):
            if bounding >> number & 1 and not kept >> number & 1:
                _prctl(_BOUNDING_DROP, number)
    _prctl(_AMBIENT, _AMBIENT_CLEAR)
    # effective, permitted, inheritable, of the lower 32 capabilities and of the upper
    sets = (ctypes.c_uint32 * 6)(*[kept & 0xFFFFFFFF] * 3, *[kept >> 32] * 3)
    if _libc.capset(ctypes.byref(_Header(_VERSION_3, 0)), sets) != 0:
        raise ProbeError(
            f"capabilities cannot be given up ({os.strerror(ctypes.get_errno())}); run as root or grant none"
        )
    for number in numbers.values():
        if kept >> number & 1:
            # the compiler process of an agent that is not root needs them too
            _prctl(_AMBIENT, _AMBIENT_RAISE, number)


def confine_process(also: Iterable[str] = ()) -> None:
    """``confine`` this process with all its threads: where libraries have started some, it executes itself anew.

    The process keeps its number, and comes here again with nothing left to give up.
    """
    allowed = sum(1 << number for number in (NEEDED | {name: OPTIONAL[name] for name in also}).values())
    excess = held("CapPrm") & ~allowed
    confine(also)
    if excess and len(os.listdir("/proc/self/task")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, sys.orig_argv)


def foreign(folder: str | os.PathLike[str] | None) -> bool:
    """Tell whether root writes into a folder, or the first above it that exists, that belongs to somebody else."""
    if folder is None or os.geteuid() != 0:
        return False
    path = os.path.realpath(folder)
    while not os.path.exists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return os.stat(path).st_uid != 0


def _prctl(operation: int, argument: int, more: int = 0) -> None:
    zeros = (ctypes.c_ulong(0),) * 2
    if _libc.prctl(operation, ctypes.c_ulong(argument), ctypes.c_ulong(more), *zeros) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise ProbeError(f"prctl {operation} was refused ({reason}); expected a kernel of 5.15 or newer")
