"""CUDA's part of the table of probes: the runtime's functions and the driver's.

A runtime call ends in driver calls, and a program may use either (a compiler's kernels are launched by the driver's
functions, a statically linked runtime has no library of its own): both are hooked, and the driver's calls within a
runtime call do not count. The public names are the runtime's. Sources: driver_types.h, cuda_runtime_api.h, cuda.h; the
two sets of error codes have the same numbers since CUDA 10.1.
"""

from __future__ import annotations

import re

from eacgm.producers.probe import Probe

_RUNTIME = r"libcudart(-[0-9a-f]+)?\.so.*"  # the bare name, or as auditwheel renames it
_DRIVER = r"libcuda\.so.*"

#: symbol, public name, argument that holds the bytes; `_ptsz` and `_ptds` are for a default stream of each thread
_RUNTIME_CALLS = (
    ("cudaLaunchKernel(_ptsz)?", "cudaLaunchKernel", 0),
    ("cudaLaunchKernelExC(_ptsz)?", "cudaLaunchKernelExC", 0),
    ("cudaLaunchCooperativeKernel(_ptsz)?", "cudaLaunchCooperativeKernel", 0),
    ("cudaGraphLaunch(_ptsz)?", "cudaGraphLaunch", 0),
    ("cudaGraphInstantiate(WithFlags|WithParams(_ptsz)?)?", "cudaGraphInstantiate", 0),
    ("cudaStreamBeginCapture(ToGraph)?(_ptsz)?", "cudaStreamBeginCapture", 0),
    ("cudaStreamEndCapture(_ptsz)?", "cudaStreamEndCapture", 0),
    ("cudaMemcpy(_ptds)?", "cudaMemcpy", 3),
    ("cudaMemcpyAsync(_ptsz)?", "cudaMemcpyAsync", 3),
    ("cudaMemcpyPeer", "cudaMemcpyPeer", 5),
    ("cudaMemcpyPeerAsync", "cudaMemcpyPeerAsync", 5),
    ("cudaMalloc", "cudaMalloc", 2),
    ("cudaMallocManaged", "cudaMallocManaged", 2),
    ("cudaMallocAsync(_ptsz)?", "cudaMallocAsync", 2),
    ("cudaMallocFromPoolAsync(_ptsz)?", "cudaMallocFromPoolAsync", 2),
    ("cudaFree", "cudaFree", 0),
    ("cudaFreeAsync(_ptsz)?", "cudaFreeAsync", 0),
    ("cudaHostAlloc", "cudaHostAlloc", 2),
    ("cudaMallocHost", "cudaMallocHost", 2),
    ("cudaFreeHost", "cudaFreeHost", 0),
    ("cudaStreamSynchronize(_ptsz)?", "cudaStreamSynchronize", 0),
    ("cudaStreamQuery(_ptsz)?", "cudaStreamQuery", 0),
    ("cudaEventRecord(WithFlags)?(_ptsz)?", "cudaEventRecord", 0),
    ("cudaEventQuery", "cudaEventQuery", 0),
    ("cudaEventSynchronize", "cudaEventSynchronize", 0),
    ("cudaDeviceSynchronize", "cudaDeviceSynchronize", 0),
    ("cudaSetDevice", "cudaSetDevice", 0),
)

_DRIVER_CALLS = (
    ("cuLaunchKernel(_ptsz)?", "cudaLaunchKernel", 0),
    ("cuLaunchKernelEx(_ptsz)?", "cudaLaunchKernelExC", 0),
    ("cuLaunchCooperativeKernel(_ptsz)?", "cudaLaunchCooperativeKernel", 0),
    ("cuGraphLaunch(_ptsz)?", "cudaGraphLaunch", 0),
    ("cuGraphInstantiate(_v2|WithFlags|WithParams(_ptsz)?)?", "cudaGraphInstantiate", 0),
    ("cuStreamBeginCapture(_v2|ToGraph)?(_ptsz)?", "cudaStreamBeginCapture", 0),
    ("cuStreamEndCapture(_ptsz)?", "cudaStreamEndCapture", 0),
    ("cuMemcpy(_ptds)?", "cudaMemcpy", 3),
    ("cuMemcpyAsync(_ptsz)?", "cudaMemcpyAsync", 3),
    ("cuMemcpyHtoD_v2(_ptds)?", "cudaMemcpyHtoD", 3),
    ("cuMemcpyDtoH_v2(_ptds)?", "cudaMemcpyDtoH", 3),
    ("cuMemcpyDtoD_v2(_ptds)?", "cudaMemcpyDtoD", 3),
    ("cuMemcpyHtoDAsync_v2(_ptsz)?", "cudaMemcpyHtoDAsync", 3),
    ("cuMemcpyDtoHAsync_v2(_ptsz)?", "cudaMemcpyDtoHAsync", 3),
    ("cuMemcpyDtoDAsync_v2(_ptsz)?", "cudaMemcpyDtoDAsync", 3),
    ("cuMemcpyPeer(_ptds)?", "cudaMemcpyPeer", 5),
    ("cuMemcpyPeerAsync(_ptsz)?", "cudaMemcpyPeerAsync", 5),
    ("cuMemAlloc_v2", "cudaMalloc", 2),
    ("cuMemAllocManaged", "cudaMallocManaged", 2),
    ("cuMemAllocAsync(_ptsz)?", "cudaMallocAsync", 2),
    ("cuMemAllocFromPoolAsync(_ptsz)?", "cudaMallocFromPoolAsync", 2),
    ("cuMemCreate", "cuMemCreate", 2),
    ("cuMemFree_v2", "cudaFree", 0),
    ("cuMemFreeAsync(_ptsz)?", "cudaFreeAsync", 0),
    ("cuMemRelease", "cuMemRelease", 0),
    ("cuMemHostAlloc", "cudaHostAlloc", 2),
    ("cuMemAllocHost_v2", "cudaMallocHost", 2),
    ("cuMemFreeHost", "cudaFreeHost", 0),
    ("cuStreamSynchronize(_ptsz)?", "cudaStreamSynchronize", 0),
    ("cuStreamQuery(_ptsz)?", "cudaStreamQuery", 0),
    ("cuEventRecord(WithFlags)?(_ptsz)?", "cudaEventRecord", 0),
    ("cuEventQuery", "cudaEventQuery", 0),
    ("cuEventSynchronize", "cudaEventSynchronize", 0),
    ("cuCtxSynchronize(_v2)?", "cudaDeviceSynchronize", 0),
)

#: what allocates device memory, and what frees it
_ALLOCATING = re.compile(r"cuda(Malloc|MallocManaged|MallocAsync|MallocFromPoolAsync)|cuMemCreate")
_FREEING = re.compile(r"cuda(Free|FreeAsync)|cuMemRelease")


def _probe(library: str, symbol: str, function: str, bytes_argument: int) -> Probe:
    kind = "cuda_alloc" if _ALLOCATING.fullmatch(function) else "cuda_free" if _FREEING.fullmatch(function) else "call"
    direction = 0
    if library == _RUNTIME and function in ("cudaMemcpy", "cudaMemcpyAsync"):
        kind, direction = "cuda_copy", 4
    return Probe(
        "cuda",
        library,
        symbol,
        function,
        kind,
        errors="cuda",
        bytes_argument=bytes_argument,
        datatype_argument=direction,
        family="cuda",
    )


CUDA_PROBES = tuple(
    _probe(library, symbol, function, bytes_argument)
    for library, calls in ((_RUNTIME, _RUNTIME_CALLS), (_DRIVER, _DRIVER_CALLS))
    for symbol, function, bytes_argument in calls
)
