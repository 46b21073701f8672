"""The table of probes: which functions of which libraries are traced, and as what.

To trace one more function, add a row to ``DEFAULT_PROBES``. A row says: layer, library (a regular expression for the
file's name), symbol, the function's public name, and its kind:

- ``call``        counted and timed
- ``step``        a call that beats once a training step; its thread is the step thread
- ``gc``          a call that pauses the interpreter
- ``collective``  a call, and also a record of its own, numbered within its communicator
- ``issue``, ``enqueue``, ``execute``   the three ends of a c10d work (bpf/c10d.c); ``execute`` is a collective

A symbol is a C++ name if it holds ``::`` (any overload), ``usdt:PROVIDER:BEGIN:END`` for a pair of static markers,
else a regular expression for a C name. ``choice`` is for functions that call each other or do the same: of the rows
with the same choice, only those with the smallest number that the process has are hooked, so that nothing counts twice.
"""

from __future__ import annotations

from dataclasses import dataclass

#: layers in the order in which coverage is told
LAYERS = ("pytorch", "collective", "cuda", "python")

#: kind -> the program at the function's entry and the one at its return (bpf/calls.c, bpf/c10d.c)
PROGRAMS: dict[str, tuple[str, str]] = {
    "call": ("call_entry", "call_return"),
    "step": ("call_entry", "call_return"),
    "gc": ("call_entry", "call_return"),
    "collective": ("call_entry", "call_return"),
    "execute": ("c10d_execute", "call_return"),
    "issue": ("c10d_issue", ""),
    "enqueue": ("c10d_enqueue", ""),
}

#: the cookie's bit that asks for a record of each call (bpf/calls.c)
RECORD_BIT = 33

#: ids that fit into a cookie, id 0 being none
MAX_FUNCTIONS = 1 << 16

#: a row's function that is named after what the symbol's ``*`` stands for
EACH = "*"

#: what return value is an error -> the number in the cookie (bpf/calls.c)
ERRORS = {"": 0, "nonzero": 1, "negative": 2, "null": 3}


@dataclass(frozen=True, slots=True)
class Probe:
    """One row of the table.

    ``errors`` says which return values are errors: ``nonzero``, ``negative`` (both of an int), ``null`` or none.
    ``bytes_argument``, ``datatype_argument`` and ``communicator_argument`` count from 1 (0: there is none); with a
    datatype (NCCL's) the bytes are a count of elements. ``local`` looks for a C symbol
    that is not exported too. ``rare`` allows a probe that the kernel must single-step (14
    us a hit).
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
    rare: bool = False
    local: bool = False

    @property
    def group(self) -> str:
        """The group with which the probe goes when watching costs too much; empty if it never does (budget.py)."""
        if self.kind in ("call", "gc"):
            return "torch_ops" if self.function == EACH else self.layer
        return ""

    def cookie(self, function_id: int) -> int:
        """Return what the programs are told about this probe; the bits are those of bpf/calls.c."""
        bits = function_id | ERRORS[self.errors] << 16
        bits |= self.bytes_argument << 20 | self.datatype_argument << 24 | self.communicator_argument << 28
        bits |= (self.kind == "step") << 32
        bits |= (self.kind in ("collective", "execute")) << RECORD_BIT
        bits |= self.symbol.startswith("usdt:") << 34
        return bits


_TORCH = r"libtorch_cpu\.so.*"
_GLOO = r"libtorch_cpu\.so.*|libgloo\.so.*"
_PYTHON = r"python3(\.\d+)?|libpython3.*\.so.*"
_CUDART = r"libcudart(-[0-9a-f]+)?\.so.*"  # the bare name, or as auditwheel renames it
_CUDA = r"libcuda\.so.*"
_NCCL = r"libnccl\.so.*"

_C10D_OPERATIONS = {
    "allreduce": "allreduce",
    "allreduce_coalesced": "allreduce",
    "allreduce_sparse": "allreduce",
    "broadcast": "broadcast",
    "barrier": "barrier",
    "allgather": "allgather",
    "allgather_coalesced": "allgather",
    "_allgather_base": "allgather",
    "allgather_into_tensor_coalesced": "allgather",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "gather": "gather",
    "scatter": "scatter",
    "alltoall": "alltoall",
    "alltoall_base": "alltoall",
}
_GLOO_OPERATIONS = (
    "allreduce",
    "broadcast",
    "barrier",
    "allgather",
    "allgatherv",
    "reduce",
    "gather",
    "scatter",
    "alltoall",
)


def _cuda(symbol: str, function: str, level: int, bytes_argument: int = 0) -> Probe:
    """A CUDA call: of the runtime (level 0), or of the driver where the runtime is linked statically (level 1)."""
    library = _CUDA if level else _CUDART
    choice = ("cuda", level)
    return Probe("cuda", library, symbol, function, errors="nonzero", bytes_argument=bytes_argument, choice=choice)


def _nccl(symbol: str, function: str, count: int, datatype: int, communicator: int) -> Probe:
    return Probe(
        "collective",
        _NCCL,
        symbol,
        function,
        "collective",
        "nonzero",
        count,
        datatype,
        communicator,
        choice=("nccl", 0),
    )


DEFAULT_PROBES: tuple[Probe, ...] = (
    # PyTorch: autograd and DistributedDataParallel
    Probe("pytorch", _TORCH, "torch::autograd::Engine::execute", "backward", "step"),
    Probe("pytorch", _TORCH, "c10d::Reducer::prepare_for_backward", "ddp_prepare_for_backward", rare=True),
    Probe("pytorch", _TORCH, "c10d::Reducer::finalize_backward", "ddp_finalize_backward", rare=True),
    Probe("pytorch", _TORCH, "c10d::Work::wait", "work_wait", rare=True),
    # c10d over gloo: who issues what on which group, and the worker thread that runs it
    *(
        Probe(
            "collective", _TORCH, f"c10d::ProcessGroupGloo::{name}", operation, "issue", choice=("gloo", 0), rare=True
        )
        for name, operation in _C10D_OPERATIONS.items()
    ),
    Probe("collective", _TORCH, "c10d::ProcessGroupGloo::enqueue", "enqueue", "enqueue", choice=("gloo", 0), rare=True),
    Probe(
        "collective",
        _TORCH,
        "c10d::ProcessGroupGloo::AsyncWork::execute",
        "collective",
        "execute",
        choice=("gloo", 0),
        rare=True,
    ),
    # gloo itself, where c10d's worker is not visible
    *(
        Probe("collective", _GLOO, f"gloo::{name}", name.removesuffix("v"), "collective", choice=("gloo", 1), rare=True)
        for name in _GLOO_OPERATIONS
    ),
    # NCCL: the host's call is the enqueue; bytes = count x size of the datatype
    _nccl("ncclAllReduce", "allreduce", 3, 4, 6),
    _nccl("ncclAllGather", "allgather", 3, 4, 5),
    _nccl("ncclReduceScatter", "reduce_scatter", 3, 4, 6),
    _nccl("ncclBroadcast", "broadcast", 3, 4, 6),
    _nccl("ncclReduce", "reduce", 3, 4, 7),
    _nccl("ncclSend", "send", 2, 3, 5),
    _nccl("ncclRecv", "recv", 2, 3, 5),
    # CUDA: return codes are the runtime's (or the driver's)
    _cuda("cudaLaunchKernel(_ptsz)?", "cudaLaunchKernel", 0),
    _cuda("cudaLaunchKernelExC(_ptsz)?", "cudaLaunchKernelExC", 0),
    _cuda("cudaGraphLaunch(_ptsz)?", "cudaGraphLaunch", 0),
    _cuda("cudaMemcpy(_ptds)?", "cudaMemcpy", 0, 3),
    _cuda("cudaMemcpyAsync(_ptsz)?", "cudaMemcpyAsync", 0, 3),
    _cuda("cudaMalloc", "cudaMalloc", 0, 2),
    _cuda("cudaMallocAsync(_ptsz)?", "cudaMallocAsync", 0, 2),
    _cuda("cudaFree", "cudaFree", 0),
    _cuda("cudaStreamSynchronize(_ptsz)?", "cudaStreamSynchronize", 0),
    _cuda("cudaEventSynchronize", "cudaEventSynchronize", 0),
    _cuda("cudaDeviceSynchronize", "cudaDeviceSynchronize", 0),
    _cuda("cuLaunchKernel(_ptsz)?", "cudaLaunchKernel", 1),
    _cuda("cuLaunchKernelEx(_ptsz)?", "cudaLaunchKernelExC", 1),
    _cuda("cuGraphLaunch(_ptsz)?", "cudaGraphLaunch", 1),
    _cuda("cuMemcpyHtoDAsync_v2(_ptsz)?", "cudaMemcpyAsync", 1, 3),
    _cuda("cuMemcpyDtoHAsync_v2(_ptsz)?", "cudaMemcpyAsync", 1, 3),
    _cuda("cuMemAlloc_v2", "cudaMalloc", 1, 2),
    _cuda("cuStreamSynchronize(_ptsz)?", "cudaStreamSynchronize", 1),
    _cuda("cuEventSynchronize", "cudaEventSynchronize", 1),
    _cuda("cuCtxSynchronize", "cudaDeviceSynchronize", 1),
    # Python's collector of cycles: by its symbol, by its static markers in a stripped interpreter
    Probe("python", _PYTHON, "gc_collect_main", "gc", "gc", choice=("gc", 0), local=True),
    Probe("python", _PYTHON, "usdt:python:gc__start:gc__done", "gc", "gc", choice=("gc", 1), rare=True),
)

#: every operator of PyTorch, thousands: for those who ask for them, as they cost a training step some percent
TORCH_OPS = Probe("pytorch", _TORCH, "at::_ops::*::call", EACH)
