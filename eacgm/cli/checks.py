"""What works on this machine: one function per question, each with the way to mend a no."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from eacgm.errors import EacgmError

#: ``limited`` works with a loss that ``detail`` names; ``absent`` is missing and not needed for everything
OK, LIMITED, ABSENT, MISSING = "ok", "limited", "absent", "missing"

_BCC_SECONDS = 60.0
_KAFKA_SECONDS = 5.0
#: what one round of NVML's readings may take
_NVML_NS = 5_000_000_000
_TRACED = "pytorch, collective, cuda, python, scheduler and TCP cannot be traced"
#: capability -> which layers cannot be seen without it; the kernel log, for CAP_SYSLOG, has a check of its own
_LOSSES = {
    "CAP_BPF": _TRACED,
    "CAP_PERFMON": _TRACED,
    "CAP_SYS_PTRACE": "no layer of other users' ranks: they cannot be identified, nor their I/O read",
    "CAP_DAC_READ_SEARCH": "no layer where tracefs is its owner's alone, nor libraries that are their owners' alone",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One answer: its status (ok, limited, absent, missing), what was found, and what to do (empty if nothing)."""

    name: str
    status: str
    detail: str
    remedy: str = ""


def all_checks(bootstrap: str | None) -> Iterator[Check]:
    """Yield every answer as it is found; the last one, ``live demo``, says whether `eacgm demo` can run live."""
    found = []
    for check in _machine_checks():
        found.append(check)
        yield check
    yield check_nvml()
    yield check_kernel_log()
    yield from check_readings()
    yield check_ranks()
    if bootstrap:
        yield check_kafka(bootstrap)
    lacking = [check.name for check in found if check.status == MISSING]
    if lacking:
        detail = f"cannot run: {', '.join(lacking)} missing"
        yield Check("live demo", MISSING, detail, "what runs: eacgm demo --recorded, replay, import, simulate, bench")
    else:
        yield Check("live demo", OK, "eacgm demo runs a real job on this machine")


def _machine_checks() -> Iterator[Check]:
    needed = [check_kernel(), check_privileges(), check_tracefs(), check_bcc()]
    yield from needed
    if all(check.status != MISSING for check in needed):
        yield check_programs()
    yield check_torch()


def check_kernel() -> Check:
    """Return whether the kernel is new enough to trace, and by which way."""
    from eacgm.producers.programs import kernel_release

    major, minor = kernel_release()
    if (major, minor) < (5, 15):
        return Check("kernel", MISSING, f"{major}.{minor}", "tracing needs Linux 5.15 or newer, best 6.6")
    if (major, minor) < (6, 6):
        return Check("kernel", LIMITED, f"{major}.{minor}: no uprobe_multi, probes are attached one by one")
    return Check("kernel", OK, f"{major}.{minor}, uprobe_multi")


def check_privileges() -> Check:
    """Return which of the capabilities that tracing uses this process has."""
    from eacgm.producers.privileges import held

    return judge_privileges(held(), os.geteuid())


def judge_privileges(effective: int, user: int) -> Check:
    """Return the answer for a set of effective capabilities (a bit mask) and a user id."""
    from eacgm.producers.privileges import NEEDED, SYS_ADMIN

    if effective >> SYS_ADMIN & 1 and user == 0:
        return Check("privileges", OK, "root")
    lacking = [name for name in _LOSSES if not effective >> NEEDED[name] & 1]
    if effective >> SYS_ADMIN & 1:
        lacking = [name for name in lacking if name not in ("CAP_BPF", "CAP_PERFMON")]
    if not lacking:
        return Check("privileges", OK, ", ".join(_LOSSES))
    without: dict[str, list[str]] = {}
    for name in lacking:
        without.setdefault(_LOSSES[name], []).append(name)
    losses = "; ".join(f"without {' and '.join(names)}: {loss}" for loss, names in without.items())
    status = MISSING if {"CAP_BPF", "CAP_PERFMON"} & set(lacking) else LIMITED
    return Check("privileges", status, losses, "run as root, or grant them: deploy/eacgm-agent.service")


def check_tracefs() -> Check:
    """Return where tracefs is."""
    from eacgm.producers.toolchain import tracefs

    try:
        return Check("tracefs", OK, str(tracefs()))
    except EacgmError as error:
        return _missing("tracefs", error)


def check_bcc() -> Check:
    """Return whether BCC can be imported; a child process tries, because LLVM would stay in this one."""
    program = (
        "import sys\n"
        "from eacgm.errors import EacgmError\n"
        "from eacgm.producers.toolchain import import_bcc\n"
        "try:\n"
        "    module = import_bcc()\n"
        "    print(getattr(module, '__version__', 'of unknown version'), 'in', module.__path__[0])\n"
        "except EacgmError as error:\n"
        "    sys.exit(str(error))\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=_BCC_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Check("bcc", MISSING, f"no answer within {_BCC_SECONDS:.0f} s", "try again when the machine is idle")
    except OSError as error:
        return Check("bcc", MISSING, f"{sys.executable} cannot be started ({error.strerror})", "mend its permissions")
    if done.returncode == 0:
        return Check("bcc", OK, done.stdout.strip())
    return _missing("bcc", (done.stderr.strip().splitlines() or ["cannot be imported"])[-1])


def check_programs() -> Check:
    """Return whether the kernel takes the programs: the proof of all that stands above."""
    from eacgm.producers import programs

    begun = time.monotonic()
    try:
        loaded = programs.load()
    except EacgmError as error:
        return _missing("programs", error)
    count = len(loaded.programs)
    loaded.close()
    return Check("programs", OK, f"{count} compiled and loaded in {time.monotonic() - begun:.1f} s")


def check_torch() -> Check:
    """Return which Python could run the demo's job."""
    from eacgm.demo.interpreters import find

    try:
        python = find(quick=True)
    except EacgmError as error:
        return _missing("torch", error)
    return Check("torch", OK, f"{python.torch_version} in {python.path}")


def check_nvml() -> Check:
    """Return whether NVIDIA's management library answers, and which readings its GPUs do not give."""
    from eacgm.errors import UnsupportedError
    from eacgm.producers.nvml import Nvml

    try:
        nvml = Nvml()
    except UnsupportedError as error:
        return Check("nvml", ABSENT, _reason(error), "on a node with GPUs: install NVIDIA's driver")
    try:
        readings = nvml.read(time.monotonic_ns() + _NVML_NS)
        detail = f"{nvml.n_gpus} GPUs, driver {nvml.driver_version}"
        slow = nvml.left_out > 0
    except UnsupportedError as error:
        return Check("nvml", LIMITED, _reason(error))
    finally:
        nvml.close()
    lost = [reading.uuid for reading in readings if reading.lost]
    if lost:
        return Check("nvml", LIMITED, f"{detail}; lost: {', '.join(lost)}", "drain the node")
    if slow:
        return Check("nvml", LIMITED, f"{detail}; answers too slowly: some readings are left out")
    silent = sorted({name for reading in readings for name, value in reading.gauges.items() if value is None})
    return Check("nvml", OK, f"{detail}; not supported: {', '.join(silent)}" if silent else detail)


def _reason(error: Exception) -> str:
    return str(error).partition("; ")[0].removeprefix("NVML: ")


def check_kernel_log(root: str = "") -> Check:
    """Return whether the kernel's log, where the driver writes its XIDs, can be read."""
    from eacgm.producers.kernel_log import KernelLog

    log = KernelLog(root)
    log.close()
    if log.failure is None:
        return Check("kernel log", OK, "XIDs are read from /dev/kmsg")
    detail = f"/dev/kmsg: {log.failure.partition(': ')[2]}; XIDs come from NVML alone"
    return Check("kernel log", LIMITED, detail, "run as root or with CAP_SYSLOG")


def check_readings(root: str = "") -> Iterator[Check]:
    """Yield what the kernel does not tell in /proc because it was built or booted so."""
    from eacgm.producers.cgroups import cpu_mounts
    from eacgm.producers.node import read_node
    from eacgm.producers.procfs import delay_accounting, read_file

    if read_node(root).cpu_stalled_seconds is None:
        yield Check("pressure", ABSENT, "no /proc/pressure", "boot with psi=1")
    else:
        yield Check("pressure", OK, "/proc/pressure")
    if delay_accounting(root):
        yield Check("I/O delay", OK, "block I/O delays are accounted")
    else:
        detail = "block I/O delays are not accounted; uninterruptible sleep stands in"
        yield Check("I/O delay", LIMITED, detail, "sysctl kernel.task_delayacct=1")
    versions = sorted({mount.version for mount in cpu_mounts(read_file(f"{root}/proc/self/mountinfo"))})
    if versions:
        yield Check("cgroups", OK, "CPU quotas are read, version " + " and ".join(map(str, versions)))
    else:
        yield Check("cgroups", ABSENT, "none mounted: throttled time is unknown", "mount /sys/fs/cgroup")


def check_ranks() -> Check:
    """Return the jobs that run here now, and the traced libraries that their ranks have loaded."""
    import re

    from eacgm.producers.libraries import mapped_libraries
    from eacgm.producers.probes import DEFAULT_PROBES
    from eacgm.producers.processes import ProcessTable
    from eacgm.producers.roles import RANK

    table = ProcessTable()
    table.scan()
    patterns = [re.compile(pattern) for pattern in sorted({probe.library for probe in DEFAULT_PROBES})]
    jobs: dict[str, int] = {}
    libraries: set[str] = set()
    for process in table.processes:
        if process.role != RANK:
            continue
        jobs[process.identity.job] = jobs.get(process.identity.job, 0) + 1
        try:
            libraries |= {library.name for library in mapped_libraries(process.pid, patterns)}
        except EacgmError:
            continue  # it has ended
    # even root may not look at all: the kernel guards a few
    hidden = f"{table.unreadable} processes may not be looked at" if table.unreadable and os.geteuid() else ""
    if not jobs:
        return Check("ranks", ABSENT, "none run now" + (f"; {hidden}" if hidden else ""))
    told = ", ".join(f"{job}: {count}" for job, count in sorted(jobs.items()))
    detail = f"{told}; libraries: {', '.join(sorted(libraries)) or 'none that is traced'}"
    return Check("ranks", LIMITED if hidden else OK, f"{detail}; {hidden}" if hidden else detail)


def check_kafka(bootstrap: str) -> Check:
    """Return whether one of ``host:port,host:port`` answers as a Kafka broker (ApiVersions, in plain text)."""
    complaints = []
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            complaints.append(f"{address!r} is no host:port")
            continue
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_KAFKA_SECONDS) as broker:
                if _answers_as_kafka(broker):
                    return Check("kafka", OK, f"{address.strip()} answers")
                complaints.append(f"{address.strip()} does not speak Kafka's protocol in plain text")
        except OSError as error:
            complaints.append(f"{address.strip()}: {error.strerror or error}")
    return Check("kafka", MISSING, "; ".join(complaints), "check the address, and that a broker listens there")


def _answers_as_kafka(broker: socket.socket) -> bool:
    """Ask for ApiVersions (key 18) version 0; a broker answers with our correlation id and no error."""
    correlation = 0x65414347
    client = b"eacgm-doctor"
    request = struct.pack(">hhih", 18, 0, correlation, len(client)) + client
    broker.sendall(struct.pack(">i", len(request)) + request)
    answer = b""
    while len(answer) < 10:
        part = broker.recv(10 - len(answer))
        if not part:
            return False
        answer += part
    size, echoed, error = struct.unpack(">iih", answer)
    return bool(size >= 6 and echoed == correlation and error == 0)


def _missing(name: str, error: object) -> Check:
    """Return a no from an error's line, which reads ``what; what to do``."""
    detail, _, remedy = str(error).partition("; ")
    return Check(name, MISSING, detail, remedy)
