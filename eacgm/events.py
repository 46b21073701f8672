"""What travels: one class per topic, each instance one message.

A message carries one process's (or node's) whole interval as arrays, never one call. Times are event time
in UTC nanoseconds; a reading that could not be had is ``None``, never 0. Arrays of one message that
describe the same rows have the same length; decoding checks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


#: what a job may be doing as a whole
PHASES = ("warmup", "train", "eval", "checkpoint", "idle")


def no_ints() -> IntArray:
    """Return an empty column of whole numbers."""
    return np.empty(0, dtype=np.int64)


def no_floats() -> FloatArray:
    """Return an empty column of real numbers."""
    return np.empty(0, dtype=np.float64)


@dataclass(slots=True, kw_only=True, eq=False)
class Event:
    """What every message says: whose interval it is, and when.

    ``start_ns`` and ``end_ns`` bound the interval (event time); ``published_ns`` and ``sequence`` are the
    producer's own order of sending, by which a recording is replayed and a message that came twice is known (a
    restarted producer goes on above); ``clock_error_ns`` bounds the node's clock error (adjtimex), None if unknown.
    ``rank`` is None for a node and for a process of unknown rank; ``pid`` is the host's, 0 for a node; ``role`` is
    ``rank`` (the training process), ``worker`` (a child of it, such as a data loader) or ``node``. ``lost`` counts
    what the producer knows it failed to see or to deliver.
    """

    topic: ClassVar[str] = ""

    job: str
    incarnation: int = 0
    node: str = ""
    rank: int | None = None
    pid: int = 0
    role: str = "rank"
    start_ns: int
    end_ns: int
    published_ns: int = 0
    sequence: int = 0
    clock_error_ns: int | None = None
    lost: int = 0

    @property
    def middle_ns(self) -> int:
        """The instant that decides which window the message falls into (UTC ns)."""
        return self.start_ns + (self.end_ns - self.start_ns) // 2

    def __eq__(self, other: object) -> bool:
        """Compare field by field, arrays included; NaN equals NaN."""
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        real = np.asarray(left).dtype.kind == "f"
        return bool(np.array_equal(left, right, equal_nan=real))
    if isinstance(left, float) and isinstance(right, float) and left != left and right != right:
        return True
    return bool(left == right)


@dataclass(slots=True, kw_only=True, eq=False)
class LayerCoverage:
    """How well one layer of one process is seen.

    ``status`` is ``attached``, ``partial``, ``absent`` (the library is not loaded), ``failed`` or ``shed``;
    ``reason`` says why it is not ``attached``; ``probes`` counts the attached functions.
    """

    layer: str
    status: str
    reason: str = ""
    probes: int = 0

    def __eq__(self, other: object) -> bool:
        """Compare field by field."""
        if not isinstance(other, LayerCoverage):
            return NotImplemented
        return (self.layer, self.status, self.reason, self.probes) == (
            other.layer,
            other.status,
            other.reason,
            other.probes,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class ProcessEvent(Event):
    """A process's identity and coverage; sent when first seen, when something changed, and every 30 s.

    ``group`` names the peers that do the same work (a pipeline stage), empty if all do.
    ``state`` is ``running`` or ``exited``; ``exit_code`` is the raw wait status's exit code or minus the signal's
    number, None while running or where the kernel did not tell.
    """

    topic: ClassVar[str] = "eacgm.processes.v1"

    local_rank: int | None = None
    world_size: int | None = None
    local_world_size: int | None = None
    group: str = ""
    container: str | None = None
    command: str = ""
    gpu_uuids: list[str] = field(default_factory=list)
    state: str = "running"
    exit_code: int | None = None
    layers: list[LayerCoverage] = field(default_factory=list)


@dataclass(slots=True, kw_only=True, eq=False)
class CallsEvent(Event):
    """Calls of traced functions by one process in one interval, aggregated in the kernel.

    Columns of ``n`` rows, one per (layer, function): ``count`` and ``total_ns``, ``max_ns`` of calls that
    returned; ``errors`` among them; ``payload_bytes`` they moved; ``open_count`` calls in flight at ``end_ns``, the
    oldest ``open_age_ns`` old. The histogram of call times is sparse: ``histogram_count`` calls of row
    ``histogram_row`` took ``[2**b, 2**(b+1))`` ns, ``b`` being ``histogram_bucket``. So are the errors by code:
    ``error_count`` calls of row ``error_row`` returned ``error_code``. ``cuda_allocated_bytes`` is device memory that
    the process was seen to allocate and not to free, at ``end_ns``; None where that is unknown.
    """

    topic: ClassVar[str] = "eacgm.calls.v1"

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
    cuda_allocated_bytes: int | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class CollectivesEvent(Event):
    """Collective calls of one process, one row each.

    ``communicator`` names the group on every rank alike, ``call_sequence`` counts per communicator and
    process, ``operation`` is ``allreduce``, ``broadcast`` ...; ``call_start_ns`` and ``call_end_ns`` are UTC ns.
    ``payload_bytes`` is -1 and ``return_code`` 0 where the library does not tell. The ``open_*`` columns are
    the calls in flight at ``end_ns``.
    """

    topic: ClassVar[str] = "eacgm.collectives.v1"

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


@dataclass(slots=True, kw_only=True, eq=False)
class GpuEvent(Event):
    """One GPU's readings over one interval (NVML); what the device does not support is None.

    ``utilization_ratio`` and ``memory_activity_ratio`` are 0-1; ``throttle_reasons`` is NVML's bit mask;
    ``ecc_errors`` are uncorrected ones since the driver was loaded; ``xids`` those seen in this interval, without
    ``xids_nonfatal``, which the driver itself called nonfatal; ``xid_subcodes`` names those of both that carried a
    sub-code, as ``149.4``. ``lost_device`` is True as long as NVML says that the GPU is lost. ``process_*`` columns:
    one row per process on it; memory -1 and ratio NaN where not told. Of a MIG instance memory and processes are its
    own, all else is its GPU's.
    """

    topic: ClassVar[str] = "eacgm.gpu.v1"

    gpu_uuid: str = ""
    gpu_index: int | None = None
    utilization_ratio: float | None = None
    memory_activity_ratio: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    sm_clock_hertz: float | None = None
    memory_clock_hertz: float | None = None
    throttle_reasons: int | None = None
    ecc_errors: float | None = None
    pcie_sent_bytes: float | None = None
    pcie_received_bytes: float | None = None
    pcie_replays: float | None = None
    nvlink_errors: float | None = None
    lost_device: bool | None = None
    xids: list[int] = field(default_factory=list)
    xids_nonfatal: list[int] = field(default_factory=list)
    xid_subcodes: list[str] = field(default_factory=list)
    process_pid: IntArray = field(default_factory=no_ints)
    process_memory_bytes: IntArray = field(default_factory=no_ints)
    process_sm_ratio: FloatArray = field(default_factory=no_floats)


@dataclass(slots=True, kw_only=True, eq=False)
class HostEvent(Event):
    """What the kernel tells of one process (``role`` rank or worker) or one node (``role`` node) in one interval.

    Seconds and bytes are sums over the interval and over the process's threads; ``rss_bytes``,
    ``*_pressure_ratio``, ``load`` and ``memory_available_bytes`` are readings at its end; ``net_rtt_seconds`` is the
    mean of the kernel's smoothed TCP round-trip times over the segments that came in.
    ``stopped`` is True if the process is stopped by a signal or tracer at its end,
    ``stopped_seconds`` how long it was. The ``step_thread_*`` values are of the
    thread that calls backward: ``step_thread_blocked_seconds`` is time asleep outside every traced call, that
    is, waiting for something other than peers or the device (usually data).

    ``peer_*`` are a process's TCP traffic by the peer's address, most bytes first: a row each for at most 64 peers, and
    one without an address for all others together; ``peer_rtt_seconds`` is NaN where no segment came in. ``port_*``
    are a node's InfiniBand and RoCE ports, named DEVICE/PORT: whether it is active (1 or 0), and what its counters grew
    by, NaN where the device has no such counter or there is nothing yet to compare with.
    """

    topic: ClassVar[str] = "eacgm.host.v1"

    cpu_seconds: float | None = None
    run_queue_wait_seconds: float | None = None
    off_cpu_seconds: float | None = None
    io_wait_seconds: float | None = None
    throttled_seconds: float | None = None
    major_faults: float | None = None
    rss_bytes: float | None = None
    io_read_bytes: float | None = None
    io_written_bytes: float | None = None
    net_sent_bytes: float | None = None
    net_received_bytes: float | None = None
    net_retransmits: float | None = None
    net_rtt_seconds: float | None = None
    stopped: bool | None = None
    stopped_seconds: float | None = None
    threads: int | None = None
    step_thread_cpu_seconds: float | None = None
    step_thread_run_queue_wait_seconds: float | None = None
    step_thread_blocked_seconds: float | None = None
    load: float | None = None
    cpu_steal_seconds: float | None = None
    cpu_pressure_ratio: float | None = None
    io_pressure_ratio: float | None = None
    memory_pressure_ratio: float | None = None
    memory_available_bytes: float | None = None
    oom_kills: float | None = None
    xids: list[int] = field(default_factory=list)
    peer_address: list[str] = field(default_factory=list)
    peer_sent_bytes: IntArray = field(default_factory=no_ints)
    peer_received_bytes: IntArray = field(default_factory=no_ints)
    peer_retransmits: IntArray = field(default_factory=no_ints)
    peer_rtt_seconds: FloatArray = field(default_factory=no_floats)
    port_name: list[str] = field(default_factory=list)
    port_active: IntArray = field(default_factory=no_ints)
    port_sent_bytes: FloatArray = field(default_factory=no_floats)
    port_received_bytes: FloatArray = field(default_factory=no_floats)
    port_errors: FloatArray = field(default_factory=no_floats)
    port_retransmits: FloatArray = field(default_factory=no_floats)
    port_link_downs: FloatArray = field(default_factory=no_floats)


@dataclass(slots=True, kw_only=True, eq=False)
class SamplesEvent(Event):
    """Named readings of one rank from anywhere else: an imported table, an exporter of one's own.

    ``name`` and ``value`` are columns of the same length; a name of the feature catalogue has its meaning, any
    other is a feature all the same. ``phase`` is what the source says the job was doing, empty if it does not say.
    """

    topic: ClassVar[str] = "eacgm.samples.v1"

    group: str = ""
    phase: str = ""
    name: list[str] = field(default_factory=list)
    value: FloatArray = field(default_factory=no_floats)


@dataclass(slots=True, kw_only=True, eq=False)
class FrameEvent(Event):
    """A job's joined window: a row per rank, a column per feature.

    ``ranks``, ``present``, ``nodes`` and ``groups`` have ``n_ranks`` entries; ``values`` is of shape
    ``(n_ranks, n_features)`` in the units of the catalogue, NaN where nothing was told. ``late`` counts messages
    that came after their window was closed; ``coverage`` is the share of the job that was visible (0-1).
    """

    topic: ClassVar[str] = "eacgm.frames.v1"

    phase: str = ""
    coverage: float = 1.0
    late: int = 0
    ranks: IntArray = field(default_factory=no_ints)
    present: list[bool] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    features: list[str] = field(default_factory=list)
    values: FloatArray = field(default_factory=lambda: np.empty((0, 0)))


@dataclass(slots=True)
class Evidence:
    """One reading that speaks for the verdict.

    ``value`` was seen, ``expected`` is what peers or the rank's own past suggest, both in ``unit``; ``share``
    (0-1) is this feature's part of the anomaly; ``rank`` is None for the job as a whole.
    """

    feature: str
    rank: int | None
    value: float
    expected: float | None
    unit: str
    share: float


@dataclass(slots=True, kw_only=True, eq=False)
class AlertEvent(Event):
    """An incident's opening, update or resolution.

    ``id`` is the same for the same input; ``incident`` joins the messages of one incident. ``state`` is open,
    update or resolved; ``severity`` info, warning or critical; ``cause`` one of the causes of
    ``eacgm.streams.diagnose``; ``ranks`` the culprits, empty if nobody in particular. ``score`` is the mixture's
    negative log-density in nats, the highest so far, and ``p_value`` the chance of such a score in health; both are 0
    where a rule needs no statistics.
    """

    topic: ClassVar[str] = "eacgm.alerts.v1"

    id: str = ""
    incident: str = ""
    state: str = "open"
    severity: str = "warning"
    cause: str = "unknown"
    layer: str = ""
    ranks: IntArray = field(default_factory=no_ints)
    gpu: str | None = None
    started_at_ns: int = 0
    detected_at_ns: int = 0
    resolved_at_ns: int | None = None
    score: float = 0.0
    p_value: float = 1.0
    evidence: list[Evidence] = field(default_factory=list)
    coverage: float = 1.0
    summary: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class DeadLetterEvent(Event):
    """What could not be read: the bytes, where from, why."""

    topic: ClassVar[str] = "eacgm.deadletter.v1"

    origin: str = ""
    place: str = ""
    reason: str = ""
    payload: bytes = b""


def event_classes() -> Iterator[type[Event]]:
    """Yield every class of event that has a topic, in the order of the topics' table."""
    yield from (
        ProcessEvent,
        CallsEvent,
        CollectivesEvent,
        GpuEvent,
        HostEvent,
        SamplesEvent,
        FrameEvent,
        AlertEvent,
        DeadLetterEvent,
    )


#: topic -> the class of its messages
EVENT_OF_TOPIC: dict[str, type[Event]] = {kind.topic: kind for kind in event_classes()}
