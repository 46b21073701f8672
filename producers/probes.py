"""The table of probes: which functions of which libraries are traced, and as what.

To trace one more function, add a row to ``DEFAULT_PROBES``. A row says: layer, library (a regular expression for the
file's name), symbol, the function's public name, and its kind:

- ``call``        counted and timed
- ``step``        a call that beats once a training step; its thread is the step thread
- ``gc``          a call that pauses the interpreter
- ``collective``  a call, and also a record of its own, numbered within its communicator
- ``issue``, ``enqueue``, ``execute``   the three ends of a c10d work (bpf/c10d.c); ``execute`` is a collective
- ``cuda_copy``, ``cuda_alloc``, ``cuda_free``   a copy, by its direction, and what allocates and frees (bpf/cuda.c)
- ``nccl`` and ``nccl_...``   a collective on one of NCCL's communicators, and what makes and ends those (bpf/nccl.c)

A symbol is a C++ name if it holds ``::`` (any overload), ``usdt:PROVIDER:BEGIN:END`` for a pair of static markers,
else a regular expression for a C name. Nothing counts twice: ``choice`` is for functions that do the same in several
ways: of the rows with the same choice, only those with the smallest number that the process has are hooked; ``family``
is for functions that call each other on one thread: only the outermost call counts.
"""

from __future__ import annotations

from eacgm.producers.cuda_probes import CUDA_PROBES
from eacgm.producers.nccl_probes import NCCL_PROBES
from eacgm.producers.probe import EACH, Probe

_TORCH = r"libtorch_cpu\.so.*"
_GLOO = r"libtorch_cpu\.so.*|libgloo\.so.*"
_PYTHON = r"python3(\.\d+)?|libpython3.*\.so.*"

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
    *NCCL_PROBES,
    *CUDA_PROBES,
    # Python's collector of cycles: by its symbol, by its static markers in a stripped interpreter
    Probe("python", _PYTHON, "gc_collect_main", "gc", "gc", choice=("gc", 0), local=True),
    Probe("python", _PYTHON, "usdt:python:gc__start:gc__done", "gc", "gc", choice=("gc", 1), rare=True),
)

#: every operator of PyTorch, thousands: for those who ask for them, as they cost a training step some percent
TORCH_OPS = Probe("pytorch", _TORCH, "at::_ops::*::call", EACH)
