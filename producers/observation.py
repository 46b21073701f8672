"""What the tracer saw of one process in one interval, in columns that the events take as they are."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from eacgm.events import FloatArray, IntArray, no_floats, no_ints


class Columns:
    """Fields that an event of the same columns takes as they are."""

    __slots__ = ()

    def columns(self) -> dict[str, Any]:
        """Return the columns by name, as the event of the same columns takes them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


@dataclass(slots=True, kw_only=True, eq=False)
class CallColumns(Columns):
    """Rows of traced functions, one once it was ever called; the columns are those of ``CallsEvent``."""

    layer: list[str] = field(default_factory=list)
    function: list[str] = field(default_factory=list)
    count: IntArray = field(default_factory=no_ints)
    errors: IntArray = field(default_factory=no_ints)
    payload_bytes: IntArray = field(default_factory=no_ints)
    total_ns: IntArray = field(default_factory=no_ints)
    max_ns: IntArray = field(default_factory=no_ints)
    open_count: IntArray = field(default_factory=no_ints)
    open_age_ns: IntArray = field(default_factory=no_ints)
    histogram_row: IntArray = field(default_factory=no_ints)
    histogram_bucket: IntArray = field(default_factory=no_ints)
    histogram_count: IntArray = field(default_factory=no_ints)
    error_row: IntArray = field(default_factory=no_ints)
    error_code: IntArray = field(default_factory=no_ints)
    error_count: IntArray = field(default_factory=no_ints)


@dataclass(slots=True, kw_only=True, eq=False)
class CollectiveColumns(Columns):
    """Collective calls that returned, and those in flight; the columns are those of ``CollectivesEvent``."""

    communicator: list[str] = field(default_factory=list)
    operation: list[str] = field(default_factory=list)
    call_sequence: IntArray = field(default_factory=no_ints)
    payload_bytes: IntArray = field(default_factory=no_ints)
    call_start_ns: IntArray = field(default_factory=no_ints)
    call_end_ns: IntArray = field(default_factory=no_ints)
    return_code: IntArray = field(default_factory=no_ints)
    open_communicator: list[str] = field(default_factory=list)
    open_operation: list[str] = field(default_factory=list)
    open_call_sequence: IntArray = field(default_factory=no_ints)
    open_call_start_ns: IntArray = field(default_factory=no_ints)


@dataclass(slots=True, kw_only=True)
class HostColumns(Columns):
    """Scheduler and TCP values of one process; the fields are those of ``HostEvent`` of the same names.

    Seconds are sums over threads within the interval, save ``stopped_seconds`` (the main thread's). None is what could
    not be had: no backward seen yet, a step thread seen for the first time, a kernel without the tracepoint.
    """

    cpu_seconds: float | None = None
    run_queue_wait_seconds: float | None = None
    off_cpu_seconds: float | None = None
    io_wait_seconds: float | None = None
    stopped: bool | None = None
    stopped_seconds: float | None = None
    threads: int | None = None
    step_thread_cpu_seconds: float | None = None
    step_thread_run_queue_wait_seconds: float | None = None
    step_thread_blocked_seconds: float | None = None
    net_sent_bytes: float | None = None
    net_received_bytes: float | None = None
    net_retransmits: float | None = None
    net_rtt_seconds: float | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class PeerColumns(Columns):
    """A row for each peer with which there was traffic, most bytes first; the columns are those of ``HostEvent``.

    The row with no address is of peers that are not known by name. Bytes and retransmits of all rows add up to the
    process's; ``peer_rtt_seconds`` is NaN where no segment came in.
    """

    peer_address: list[str] = field(default_factory=list)
    peer_sent_bytes: IntArray = field(default_factory=no_ints)
    peer_received_bytes: IntArray = field(default_factory=no_ints)
    peer_retransmits: IntArray = field(default_factory=no_ints)
    peer_rtt_seconds: FloatArray = field(default_factory=no_floats)


@dataclass(slots=True, kw_only=True)
class Observation:
    """One process's interval (UTC).

    ``lost`` counts what found no room in the kernel; ``cuda_allocated_bytes`` is device memory that was seen to be
    allocated and not freed, None where no allocation was seen or not all of them.
    """

    pid: int
    start_ns: int
    end_ns: int
    lost: int
    calls: CallColumns
    collectives: CollectiveColumns
    host: HostColumns
    peers: PeerColumns
    cuda_allocated_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """A process that came (``fork`` of a watched one, ``exec`` of any) or went (``exit`` of a watched one).

    ``parent`` is the watched process that forked, 0 else; ``exit_code`` is the code, or minus the signal's number,
    None where the kernel does not tell.
    """

    kind: str
    pid: int
    time_ns: int
    parent: int = 0
    exit_code: int | None = None


@dataclass(slots=True, kw_only=True)
class Collection:
    """One collection: the watched processes' observations by pid, and what concerns the node.

    ``clock_error_ns`` bounds the node's clock error, None if unknown; ``lost_lifecycles`` counts lifecycle records
    that found no room; ``unattributed_retransmits`` are TCP retransmissions of sockets on which no watched process
    was seen to send, None where the kernel has no tracepoint for them.
    """

    end_ns: int
    clock_error_ns: int | None
    observations: dict[int, Observation]
    lifecycles: list[Lifecycle]
    lost_lifecycles: int
    unattributed_retransmits: int | None
