"""NCCL's part of the table of probes.

The host's call is the enqueue; within a group (ncclGroupStart, ncclGroupEnd) the work is handed over by the last
ncclGroupEnd. Every ``ncclX`` is also called ``pncclX``, at the same address; ``ncclBcast`` calls ``ncclBroadcast``.
Point-to-point calls are counted and have no record: their order is a matter of each pair of ranks, not of the
communicator. Source: nccl.h.
"""

from __future__ import annotations

from eacgm.producers.probe import Probe

_LIBRARY = r"libnccl\.so.*"

#: symbol, operation; arguments that hold the count of elements, their type, the communicator
_COLLECTIVES = (
    ("ncclAllReduce(Config)?", "allreduce", 3, 4, 6),
    ("ncclAllGather(Config)?", "allgather", 3, 4, 5),
    ("ncclReduceScatter(Config)?", "reduce_scatter", 3, 4, 6),
    ("ncclBroadcast(Config)?", "broadcast", 3, 4, 6),
    ("ncclReduce(Config)?", "reduce", 3, 4, 7),
    ("ncclAlltoAll(Config)?", "alltoall", 3, 4, 5),
    ("ncclGather(Config)?", "gather", 3, 4, 6),
    ("ncclScatter(Config)?", "scatter", 3, 4, 6),
)
_PEER_TO_PEER = (("ncclSend", "send"), ("ncclRecv", "recv"))
#: symbol, kind; seldom called: they may be single-stepped
_COMMUNICATORS = (
    ("ncclCommInitRank(Config)?", "nccl_init"),
    ("ncclCommInitRankScalable", "nccl_scalable"),
    ("ncclCommInitAll", "call"),
    ("ncclCommSplit", "nccl_split"),
    ("ncclCommShrink", "nccl_shrink"),
    ("ncclCommFinalize", "call"),
    ("ncclCommDestroy", "nccl_end"),
    ("ncclCommAbort", "nccl_end"),
)


def _probe(
    symbol: str,
    function: str,
    kind: str = "call",
    count: int = 0,
    datatype: int = 0,
    communicator: int = 0,
    *,
    rare: bool = False,
) -> Probe:
    return Probe(
        "collective",
        _LIBRARY,
        symbol,
        function,
        kind,
        errors="nccl",
        bytes_argument=count,
        datatype_argument=datatype,
        communicator_argument=communicator,
        family="nccl",
        rare=rare,
    )


NCCL_PROBES = (
    *(
        _probe(symbol, operation, "nccl", count, datatype, communicator)
        for symbol, operation, count, datatype, communicator in _COLLECTIVES
    ),
    *(_probe(symbol, operation, "call", 2, 3) for symbol, operation in _PEER_TO_PEER),
    # around each batch of calls, and a watchdog's question
    _probe("ncclGroupStart", "ncclGroupStart"),
    _probe("ncclGroupEnd", "ncclGroupEnd"),
    _probe("ncclCommGetAsyncError", "ncclCommGetAsyncError", "nccl_async_error"),
    *(_probe(symbol, symbol.removesuffix("(Config)?"), kind, rare=True) for symbol, kind in _COMMUNICATORS),
)
