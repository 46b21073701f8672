"""BCC: found, and run in a process of its own that ends once the programs are in the kernel.

BCC and LLVM hold 120 MB; the agent must stay small. So ``python -m eacgm.producers.toolchain SOCKET`` compiles,
loads, and passes the descriptors of programs and maps back over the socket. Nothing else imports BCC.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

from eacgm.errors import EacgmError, ProbeError, UnsupportedError

DEBIAN_BCC = Path("/usr/lib/python3/dist-packages/bcc")
_INSTALL = "install BCC: apt-get install -y --no-install-recommends python3-bpfcc"

#: in the order in which they are compiled: each uses what stands before it
SOURCES = ("state.h", "calls.c", "c10d.c", "nccl.c", "cuda.c", "sched.c", "lifecycle.c", "tcp.c")
MAPS = (
    "processes",
    "threads",
    "departed",
    "node_counters",
    "interval",
    "sheddings",
    "open_calls",
    "rows",
    "blank_row",
    "records",
    "sequences",
    "communicators",
    "error_codes",
    "allocations",
    "memories",
    "lifecycles",
    "traffic",
    "links",
)
#: tracepoints that older kernels lack -> what is defined where they are there
OPTIONAL_TRACEPOINTS = {
    "sock/sock_send_length": "HAVE_SOCK_SEND_LENGTH",
    "sock/sock_recv_length": "HAVE_SOCK_RECV_LENGTH",
    "tcp/tcp_retransmit_skb": "HAVE_TCP_RETRANSMIT_SKB",
    "sock/inet_sock_set_state": "HAVE_INET_SOCK_SET_STATE",
}
#: tracepoint, a field that its older versions lack, and what is defined where it is there
OPTIONAL_FIELDS = (
    ("sched/sched_process_exit", "group_dead", "HAVE_GROUP_DEAD"),
    ("tcp/tcp_probe", "skaddr", "HAVE_TCP_PROBE_SOCKET"),
)
TRACEFS = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))


def import_bcc() -> ModuleType:
    """Return BCC's Python module, wherever the distribution put it.

    Raises ``UnsupportedError`` that names the package to install; the package called ``bcc`` on PyPI is another one.
    """
    intruder = False
    try:
        import bcc

        if hasattr(bcc, "BPF"):
            return bcc  # type: ignore[no-any-return]
        intruder = True
    except ModuleNotFoundError as error:
        intruder = error.name != "bcc"
    except (ImportError, OSError):
        intruder = True
    for name in [name for name in sys.modules if name == "bcc" or name.startswith("bcc.")]:
        del sys.modules[name]
    found = DEBIAN_BCC / "__init__.py"
    if found.exists():
        spec = importlib.util.spec_from_file_location("bcc", found, submodule_search_locations=[str(DEBIAN_BCC)])
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["bcc"] = module
        try:
            spec.loader.exec_module(module)
        except (ImportError, OSError) as error:
            raise UnsupportedError(f"BCC cannot be loaded ({error}); {_INSTALL}") from None
        return module
    if intruder:
        raise UnsupportedError(f"the Python package bcc is not BCC (PyPI's bcc is something else); {_INSTALL}")
    raise UnsupportedError(f"BCC is not installed; {_INSTALL}")


def find_bcc() -> None:
    """Raise ``UnsupportedError`` where BCC is not installed; nothing is imported."""
    if not (DEBIAN_BCC / "__init__.py").exists() and importlib.util.find_spec("bcc") is None:
        raise UnsupportedError(f"BCC is not installed; {_INSTALL}")


def tracefs() -> Path:
    """Return where tracefs is mounted; raises ``UnsupportedError`` with the command that mounts it."""
    for root in TRACEFS:
        try:
            if (root / "events/sched").is_dir():
                return root
        except PermissionError:
            raise UnsupportedError(f"{root} cannot be read; run as root or with CAP_DAC_READ_SEARCH") from None
    raise UnsupportedError("tracefs is not mounted; run: mount -t tracefs tracefs /sys/kernel/tracing")


def definitions(events: Path) -> list[str]:
    """Return the compiler's definitions for what this kernel's tracepoints offer."""
    found = [name for path, name in OPTIONAL_TRACEPOINTS.items() if (events / path).is_dir()]
    for path, field, name in OPTIONAL_FIELDS:
        form = events / path / "format"
        if form.exists() and field in form.read_text(encoding="ascii"):
            found.append(name)
    return found


def program_text(names: Iterable[str] = SOURCES) -> str:
    """Return the C sources as one text, each under its own name in the compiler's messages."""
    folder = files("eacgm.bpf")
    return "".join(f'#line 1 "{name}"\n{folder.joinpath(name).read_text(encoding="utf-8")}' for name in names)


def _load(request: dict[str, Any]) -> tuple[dict[str, Any], list[int], Any]:
    bcc = import_bcc()
    root = tracefs()
    flags = [f"-D{name}" for name in definitions(root / "events")]
    flags.append(f"-DRECORD_PAGES={int(request['record_pages'])}")
    os.environ["BCC_KERNEL_SOURCE"] = str(files("eacgm.bpf"))
    try:
        module = bcc.BPF(text=program_text(request["sources"]).encode(), cflags=flags)
    except Exception as error:  # noqa: BLE001 - BCC raises bare Exception
        raise ProbeError(f"BCC did not compile the programs ({error}); see the compiler's lines above") from None
    kind = 48 if request["uprobe_multi"] else -1
    programs: list[str] = []
    tracepoints: dict[str, int] = {}
    descriptors: list[int] = []
    for index in range(bcc.lib.bpf_num_functions(module.module)):
        name = bcc.lib.bpf_function_name(module.module, index).decode()
        point = name.removeprefix("tracepoint__").replace("__", "/") if name.startswith("tracepoint__") else ""
        try:
            if point:
                function = module.load_func(name.encode(), bcc.BPF.TRACEPOINT)
                tracepoints[name] = int((root / "events" / point / "id").read_text(encoding="ascii"))
            else:
                function = module.load_func(name.encode(), bcc.BPF.KPROBE, attach_type=kind)
        except Exception as error:  # noqa: BLE001 - BCC raises bare Exception
            raise ProbeError(f"the kernel refused the program {name} ({error}); see its lines above") from None
        programs.append(name)
        descriptors.append(function.fd)
    maps = [module[name.encode()].map_fd for name in request["maps"]]
    answer = {"programs": programs, "tracepoints": tracepoints, "maps": request["maps"]}
    return answer, descriptors + maps, module


def main(arguments: list[str]) -> int:
    """Load what the request on the inherited socket asks for; send the answer and the descriptors."""
    with socket.socket(fileno=int(arguments[0])) as channel:
        request = json.loads(channel.recv(65536))
        try:
            answer, descriptors, _module = _load(request)
        except EacgmError as error:
            channel.send(json.dumps({"error": str(error), "kind": type(error).__name__}).encode())
            return 1
        socket.send_fds(channel, [json.dumps(answer).encode()], descriptors)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
