"""One row of the table of probes: a function of a library, and what is to be done with its calls.

How the rows are written is told in ``eacgm.producers.probes``, where the table is.
"""

from __future__ import annotations

from dataclasses import dataclass

#: layers in the order in which coverage is told
LAYERS = ("pytorch", "collective", "cuda", "python")

#: kind -> the program at the function's entry and the one at its return (bpf/calls.c, bpf/c10d.c, bpf/nccl.c,
#: bpf/cuda.c)
PROGRAMS: dict[str, tuple[str, str]] = {
    "call": ("call_entry", "call_return"),
    "step": ("call_entry", "call_return"),
    "gc": ("call_entry", "call_return"),
    "collective": ("call_entry", "call_return"),
    "execute": ("c10d_execute", "call_return"),
    "issue": ("c10d_issue", ""),
    "enqueue": ("c10d_enqueue", ""),
    "cuda_copy": ("cuda_copy_entry", "call_return"),
    "cuda_alloc": ("cuda_alloc_entry", "cuda_alloc_return"),
    "cuda_free": ("cuda_free_entry", "cuda_free_return"),
    "nccl": ("nccl_entry", "call_return"),
    "nccl_init": ("nccl_init_entry", "nccl_init_return"),
    "nccl_scalable": ("nccl_scalable_entry", "nccl_init_return"),
    "nccl_split": ("nccl_split_entry", "nccl_init_return"),
    "nccl_shrink": ("nccl_shrink_entry", "nccl_init_return"),
    "nccl_end": ("nccl_end_entry", "call_return"),
    "nccl_async_error": ("nccl_async_error_entry", "nccl_async_error_return"),
}

#: the cookie's bit that asks for a record of each call (bpf/calls.c)
RECORD_BIT = 33

#: ids that fit into a cookie, id 0 being none
MAX_FUNCTIONS = 1 << 16

#: a row's function that is named after what the symbol's ``*`` stands for
EACH = "*"

#: of a ``cuda_copy``, by cudaMemcpyKind; the last is the driver's to find out
DIRECTIONS = ("HtoH", "HtoD", "DtoH", "DtoD", "")

#: what return value is an error -> the number in the cookie (bpf/calls.c)
ERRORS = {"": 0, "nonzero": 1, "negative": 2, "null": 3, "cuda": 4, "nccl": 5}

#: libraries whose functions call each other: of a thread's nested calls of one family only the outermost counts
FAMILIES = {"": 0, "cuda": 1, "nccl": 2}


@dataclass(frozen=True, slots=True)
class Probe:
    """One row of the table.

    ``errors`` says which return values are errors: ``nonzero``, ``negative`` (both of an int), ``null``, the library's
    own (``cuda`` and ``nccl``: not zero, and not the code for work that goes on), or none.
    ``bytes_argument``, ``datatype_argument`` and ``communicator_argument`` count from 1 (0: there is none); with a
    datatype (NCCL's) the bytes are a count of elements; for a ``cuda_copy`` it is the argument that holds the
    direction. ``choice`` and ``family`` keep a call from counting twice: see ``eacgm.producers.probes``. ``local``
    looks for a C symbol that is not exported too. ``rare`` allows a probe that the kernel must single-step (14 us a
    hit).
    """

    layer: str
    library: str
    symbol: str
    function: str
    kind: str = "call"
    errors: str = ""
    bytes_argument: int = 0
    datatype_argument: int = 0
    communicator_argument: int = 0
    choice: tuple[str, int] | None = None
    family: str = ""
    rare: bool = False
    local: bool = False

    @property
    def group(self) -> str:
        """The group with which the probe goes when watching costs too much; empty if it never does (budget.py)."""
        if self.kind in ("call", "gc", "cuda_copy"):
            return "torch_ops" if self.function == EACH else self.layer
        return ""

    @property
    def functions(self) -> tuple[str, ...]:
        """The names that calls are counted under: one, or one for each of the ``DIRECTIONS``."""
        if self.kind != "cuda_copy":
            return (self.function,)
        return tuple(self.function.replace("Memcpy", f"Memcpy{direction}") for direction in DIRECTIONS)

    def cookie(self, function_id: int) -> int:
        """Return what the programs are told about this probe; the bits are those of bpf/calls.c."""
        bits = function_id | ERRORS[self.errors] << 16
        bits |= self.bytes_argument << 20 | self.datatype_argument << 24 | self.communicator_argument << 28
        bits |= (self.kind == "step") << 32
        bits |= (self.kind in ("collective", "execute", "nccl")) << RECORD_BIT
        bits |= self.symbol.startswith("usdt:") << 34
        bits |= FAMILIES[self.family] << 36
        return bits
