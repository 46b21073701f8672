"""The BPF programs and maps, loaded: compiled by a child process, held by this one as descriptors."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from eacgm.errors import ProbeError, UnsupportedError
from eacgm.producers import kernel
from eacgm.producers.privileges import NEEDED, SYS_ADMIN, held
from eacgm.producers.toolchain import MAPS, SOURCES, find_bcc, tracefs

_MAX_DESCRIPTORS = 128
_LOAD_SECONDS = 60.0


@dataclass(slots=True)
class Programs:
    """Descriptors of everything that was loaded; ``close`` releases it.

    ``programs`` and ``maps`` by name; ``tracepoints`` are the names of the programs that hang on a tracepoint, with its
    number in tracefs; ``uprobe_multi`` tells how the other programs must be attached.
    """

    programs: dict[str, int]
    maps: dict[str, int]
    tracepoints: dict[str, int]
    uprobe_multi: bool
    links: list[int] = field(default_factory=list)

    def attach_tracepoints(self) -> None:
        """Start the programs that hang on tracepoints; raises ``ProbeError``."""
        for name, identifier in self.tracepoints.items():
            try:
                self.links.extend(kernel.link_tracepoint(self.programs[name], identifier))
            except OSError as error:
                raise ProbeError(f"the kernel refused {name} ({error.strerror}); is tracefs readable?") from None

    def close(self) -> None:
        """Detach and unload."""
        for descriptor in [*self.links, *self.programs.values(), *self.maps.values()]:
            os.close(descriptor)
        self.links, self.programs, self.maps = [], {}, {}


def check_privileges() -> None:
    """Raise ``UnsupportedError`` that names the capabilities which this process lacks for tracing."""
    effective = held()
    if effective >> SYS_ADMIN & 1:
        return
    missing = [name for name in ("CAP_BPF", "CAP_PERFMON") if not effective >> NEEDED[name] & 1]
    if missing:
        raise UnsupportedError(f"{' and '.join(missing)} missing; run as root, or grant them to the agent")


def kernel_release() -> tuple[int, int]:
    """Return the running kernel's version, as (major, minor)."""
    major, minor = platform.release().split(".")[:2]
    return int(major), int("".join(c for c in minor if c.isdigit()) or 0)


def load(
    *,
    record_pages: int = 256,
    uprobe_multi: bool | None = None,
    sources: Sequence[str] = SOURCES,
    maps: Sequence[str] = MAPS,
) -> Programs:
    """Compile and load the programs; nothing is attached yet.

    ``record_pages`` is the size of the ring for collectives in pages of 4096 bytes, a power of two.
    ``uprobe_multi`` None takes it where the kernel has it. ``sources`` are files of ``bpf/`` in the order in which they
    are compiled and ``maps`` the maps of theirs whose descriptors are wanted. Raises ``UnsupportedError`` where
    something is missing and ``ProbeError`` where the kernel refuses.
    """
    check_privileges()
    tracefs()
    find_bcc()
    release = kernel_release()
    if release < (5, 15):
        raise UnsupportedError(f"kernel {release[0]}.{release[1]} is too old; expected 5.15 or newer, best 6.6")
    multi = release >= (6, 6) if uprobe_multi is None else uprobe_multi
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            command = [sys.executable, "-m", "eacgm.producers.toolchain", str(theirs.fileno())]
            child = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        ours.settimeout(_LOAD_SECONDS)
        request = {"record_pages": record_pages, "uprobe_multi": multi, "sources": list(sources), "maps": list(maps)}
        ours.send(json.dumps(request).encode())
        try:
            message, descriptors, _, _ = socket.recv_fds(ours, 65536, _MAX_DESCRIPTORS)
        except TimeoutError:
            child.kill()
            message, descriptors = b"", []
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # else a child of ours would keep the probes attached after us
        output = child.communicate()[0].decode(errors="replace")
    if not message:
        tail = " ".join(output.split())[-300:] or "it said nothing"
        raise ProbeError(f"the compiler process ended with status {child.returncode}: {tail}")
    answer = json.loads(message)
    if "error" in answer:
        kind = UnsupportedError if answer["kind"] == "UnsupportedError" else ProbeError
        raise kind(answer["error"])
    names = answer["programs"]
    return Programs(
        programs=dict(zip(names, descriptors[: len(names)], strict=True)),
        maps=dict(zip(answer["maps"], descriptors[len(names) :], strict=True)),
        tracepoints=answer["tracepoints"],
        uprobe_multi=multi,
    )
