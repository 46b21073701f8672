"""The tracer: watches processes through the kernel and tells, interval by interval, what they did.

::

    with Tracer() as tracer:
        coverage = tracer.watch(pid)
        ...
        collection = tracer.collect()

Everything hangs on file descriptors of this process: ``close`` detaches, and so does its death.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eacgm.errors import ProbeError
from eacgm.events import LayerCoverage
from eacgm.producers import clock, maps, programs
from eacgm.producers.accounts import CallAccount, CollectiveAccount, HostAccount, thread_times
from eacgm.producers.attachment import Attachments
from eacgm.producers.call_errors import ErrorAccount
from eacgm.producers.lifecycles import Lifecycles
from eacgm.producers.maps import KernelMap
from eacgm.producers.observation import Collection, Observation
from eacgm.producers.probe import Probe
from eacgm.producers.probes import DEFAULT_PROBES
from eacgm.producers.ring import Ring
from eacgm.producers.snapshot import Snapshot, Watched, observe

_MAPS = (
    "processes",
    "threads",
    "departed",
    "node_counters",
    "interval",
    "sheddings",
    "open_calls",
    "rows",
    "sequences",
    "communicators",
    "error_codes",
    "allocations",
    "memories",
    "traffic",
    "links",
)
#: the programs without which bytes sent, bytes received and retransmits are unknown
_TRAFFIC_TRACEPOINTS = (
    "tracepoint__sock__sock_send_length",
    "tracepoint__sock__sock_recv_length",
    "tracepoint__tcp__tcp_retransmit_skb",
)
#: the letter of /proc/PID/stat -> what the thread is doing
_STATES = {"R": maps.RUNNING, "D": maps.UNINTERRUPTIBLE, "T": maps.STOPPED, "t": maps.STOPPED}


class Tracer:
    """Probes in the kernel and the accounts of the processes that are watched.

    ``probes`` is the table of functions to trace; ``record_pages`` the size of the ring for collectives (4096-byte
    pages, a power of two); ``uprobe_multi`` False forces the way of attaching that kernels before 6.6 have. Raises
    ``UnsupportedError`` where the machine lacks something and ``ProbeError`` where the kernel refuses.
    """

    def __init__(
        self,
        probes: Sequence[Probe] = DEFAULT_PROBES,
        *,
        record_pages: int = 256,
        uprobe_multi: bool | None = None,
    ) -> None:
        self._watched: dict[int, Watched] = {}
        self._lost_lifecycles = 0
        self._unattributed = 0
        self._interval = 0
        self._sheddings = 0
        self._programs = programs.load(record_pages=record_pages, uprobe_multi=uprobe_multi)
        self._rings: list[Ring] = []
        try:
            fds = self._programs.maps
            self._maps = {name: KernelMap(name, fds[name]) for name in _MAPS}
            #: the ring of collectives; only ``collect`` empties it, save in a benchmark
            self.records = Ring(fds["records"], maps.RECORD)
            self._rings.append(self.records)
            lifecycles = Ring(fds["lifecycles"], maps.LIFECYCLE)
            self._rings.append(lifecycles)
            self._lifecycles = Lifecycles(lifecycles)
            sent, received, retransmits = (name in self._programs.tracepoints for name in _TRAFFIC_TRACEPOINTS)
            self._traffic_counted = sent, received, retransmits
            self._attachments = Attachments(self._programs, probes)
            self._programs.attach_tracepoints()
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> Tracer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _release(self) -> None:
        for ring in self._rings:
            ring.close()
        self._rings = []
        self._programs.close()

    def close(self) -> None:
        """Detach everything and forget all processes."""
        for pid in list(self._watched):
            self.unwatch(pid)
        self._attachments.close()
        self._release()

    @property
    def watched(self) -> tuple[int, ...]:
        """The watched processes' pids."""
        return tuple(self._watched)

    def watch(self, pid: int) -> list[LayerCoverage]:
        """Begin to watch a process; return its coverage, one entry for each layer, absent layers included.

        Watching a watched process again is a ``refresh``. Raises ``ProbeError`` where there is no such process.
        """
        if pid not in self._watched:
            try:
                pidfd = os.pidfd_open(pid)
            except OSError as error:
                raise ProbeError(
                    f"process {pid} cannot be watched ({error.strerror}); expected a running process"
                ) from None
            functions = self._attachments.functions
            now = clock.read()
            self._watched[pid] = Watched(
                pid=pid,
                pidfd=pidfd,
                start_ns=now.monotonic_ns + now.offset_ns,
                host=HostAccount(pid, self._traffic_counted),
                calls=CallAccount(functions),
                collectives=CollectiveAccount(functions),
                errors=ErrorAccount(functions),
            )
            self._maps["processes"].put(pid, (0, 0, 0), only_new=True)
            self._enter_threads(pid)
        return self.refresh(pid)

    def refresh(self, pid: int) -> list[LayerCoverage]:
        """Attach what a watched process has mapped since; return its coverage anew.

        Raises ``ProbeError`` where it is not watched or gone.
        """
        if pid not in self._watched:
            raise ProbeError(f"process {pid} is not watched; call watch first")
        return self._attachments.attach(pid)

    def shed(self, group: str, reason: str) -> None:
        """Take a group of probes off (``Probe.group``) until ``restore``; ``reason`` goes to the coverage.

        The group's calls in flight are forgotten: no return will end them, and they must not look like a hang.
        """
        functions = self._attachments.shed(group, reason)
        self._sheddings += 1
        self._maps["sheddings"].put(0, self._sheddings)
        table = self._maps["open_calls"]
        keys, calls = table.read()
        for key in keys[np.isin(calls["function"], list(functions))].copy():
            table.delete(key)

    def restore(self, group: str) -> None:
        """Let a group's probes come back, as each process's coverage is refreshed."""
        self._attachments.restore(group)

    def probe_seconds(self, observations: Iterable[Observation]) -> dict[str, float]:
        """Return the CPU time that the probes took from the observed processes, estimated, by group."""
        spent: dict[str, float] = {}
        for observation in observations:
            calls = observation.calls
            for layer, function, count in zip(calls.layer, calls.function, calls.count.tolist(), strict=True):
                group, pair_ns = self._attachments.costs.get((layer, function), ("", 0))
                spent[group] = spent.get(group, 0.0) + count * pair_ns * 1e-9
        return spent

    def unwatch(self, pid: int) -> None:
        """Forget a process, whether it still runs or not; unknown pids are ignored."""
        watched = self._watched.pop(pid, None)
        if watched is None:
            return
        os.close(watched.pidfd)
        self._attachments.release(pid)
        for name in ("processes", "departed", "traffic", "memories"):
            self._maps[name].delete(pid)
        for name, column in (
            ("threads", ""),
            ("rows", "tgid"),
            ("open_calls", "tgid"),
            ("sequences", "tgid"),
            ("communicators", "tgid"),
            ("error_codes", "tgid"),
            ("allocations", "tgid"),
            ("links", "tgid"),
        ):
            keys, values = self._maps[name].read()
            owners = keys[column] if column else values["tgid"]
            for key in keys[owners == pid].copy():
                self._maps[name].delete(key)

    def _enter_threads(self, pid: int) -> None:
        """Tell the programs what the process's threads are doing; the scheduler's own events win."""
        threads = self._maps["threads"]
        try:
            names = os.listdir(f"/proc/{pid}/task")
        except OSError:
            return
        for name in names:
            try:
                with open(f"/proc/{pid}/task/{name}/stat", encoding="utf-8", errors="replace") as file:
                    letter = file.read().rpartition(")")[2].split()[0]
            except (OSError, IndexError):
                continue  # the thread has ended
            state = _STATES.get(letter, maps.SLEEPING)
            fresh = (time.monotonic_ns(), (0,) * maps.N_TIMES, 0, 0, (0,) * maps.N_FAMILIES, 0, pid, state)
            threads.put(int(name), fresh, only_new=True)

    def collect(self, now_ns: int | None = None) -> Collection:
        """End the interval and return what the watched processes did in it.

        ``now_ns`` is the interval's end (UTC), None for the clock's. Exited processes stay until ``unwatch``.
        """
        snapshot = self._read()
        end_ns = now_ns if now_ns is not None else snapshot.clock.monotonic_ns + snapshot.clock.offset_ns
        observations = {pid: observe(watched, snapshot, end_ns) for pid, watched in self._watched.items()}
        lost_lifecycles, unattributed = self._node_counters()
        return Collection(
            end_ns=end_ns,
            clock_error_ns=snapshot.clock.error_ns,
            observations=observations,
            lifecycles=self._lifecycles.collect(
                snapshot.clock.offset_ns, {pid: watched.pidfd for pid, watched in self._watched.items()}
            ),
            lost_lifecycles=lost_lifecycles,
            unattributed_retransmits=unattributed if self._traffic_counted[2] else None,
        )

    def _read(self) -> Snapshot:
        """Read all maps; the order matters.

        The interval's number goes up first, so that maxima stay apart; departed threads come before the living, so that
        none counts twice; threads come before the open calls, so that none in flight looks settled; links come before
        traffic, of which they are a part.
        """
        interval = self._interval
        self._interval += 1
        self._maps["interval"].put(0, self._interval)
        departed = _by_number(*self._maps["departed"].read())
        tids, threads = self._maps["threads"].read()
        reading = clock.read()
        open_keys, open_calls = self._open_calls(tids, threads)
        # before the rows: an error that is told has its row
        error_keys, errors = self._maps["error_codes"].read()
        row_keys, rows = self._maps["rows"].read()
        link_keys, links = self._maps["links"].read()
        traffic = _by_number(*self._maps["traffic"].read())
        return Snapshot(
            interval=interval,
            clock=reading,
            tids=tids,
            threads=threads,
            times=thread_times(threads, reading.monotonic_ns),
            departed=departed,
            open_keys=open_keys,
            open_calls=open_calls,
            row_keys=row_keys,
            rows=rows,
            error_keys=error_keys,
            errors=errors,
            memories=_by_number(*self._maps["memories"].read()),
            traffic=traffic,
            link_keys=link_keys,
            links=links,
            processes=_by_number(*self._maps["processes"].read()),
            records=self.records.drain(),
        )

    def _open_calls(self, tids: NDArray[Any], threads: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the calls in flight; what an exception or a thread's end has left behind is taken out of the map.

        ``threads`` was read before: a call older than its thread's last settling cannot be in flight.
        """
        table = self._maps["open_calls"]
        keys, calls = table.read()
        order = np.argsort(tids)
        known = tids[order]
        at = np.minimum(np.searchsorted(known, keys["tid"]), max(len(known) - 1, 0))
        present = known[at] == keys["tid"] if len(known) else np.zeros(len(keys), dtype=bool)
        settled = np.zeros(len(keys), dtype=np.uint64)
        settled[present] = threads["settled_ns"][order[at[present]]]
        stale = calls["start_ns"] < settled
        for index in np.flatnonzero(~present).tolist():
            stale[index] = self._maps["threads"].get(keys["tid"][index]) is None
        for key in keys[stale]:
            table.delete(key)
        return keys[~stale], calls[~stale]

    def _node_counters(self) -> tuple[int, int]:
        lost, unattributed = (
            int(value[0]) if (value := self._maps["node_counters"].get(index)) is not None else 0 for index in (0, 1)
        )
        growth = lost - self._lost_lifecycles, unattributed - self._unattributed
        self._lost_lifecycles, self._unattributed = lost, unattributed
        return growth


def _by_number(keys: NDArray[Any], values: NDArray[Any]) -> dict[int, Any]:
    return dict(zip(keys.tolist(), values, strict=True))
