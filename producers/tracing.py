"""The kernel tracer for as long as it works, and the reason once it does not: tracing never stops the agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from eacgm.errors import EacgmError
from eacgm.events import LayerCoverage
from eacgm.producers.observation import Observation
from eacgm.producers.probe import LAYERS, Probe
from eacgm.producers.probes import DEFAULT_PROBES
from eacgm.producers.procfs import executable_kib
from eacgm.producers.tracer import Tracer

#: a process's mappings are read again when its executable memory has grown or shrunk, and once in so many refreshes:
#: reading them takes milliseconds for a process with thousands
_FULL_REFRESHES = 60


@dataclass(slots=True)
class Seen:
    """What the kernel told of one interval: nothing, where nothing is traced.

    ``exits`` is pid -> exit code (None: not told); ``executed`` are pids that executed a program; ``lost`` counts
    records of forks, execs and exits that found no room; ``unattributed_retransmits`` is None where not counted.
    """

    observations: dict[int, Observation] = field(default_factory=dict)
    exits: dict[int, int | None] = field(default_factory=dict)
    executed: set[int] = field(default_factory=set)
    lost: int = 0
    unattributed_retransmits: float | None = None


@dataclass(slots=True)
class _Watch:
    layers: list[LayerCoverage]
    executable_kib: int | None
    refreshes: int = 0


class Tracing:
    """A tracer that may be missing or fail.

    ``failure`` is None while it works; after that every layer's coverage is ``failed`` for that reason.
    """

    def __init__(self, tracer: Tracer | None, failure: str | None) -> None:
        self.failure = failure
        self._tracer = tracer
        self._watches: dict[int, _Watch] = {}

    @classmethod
    def begin(cls, probes: Sequence[Probe] = DEFAULT_PROBES) -> Tracing:
        """Load the programs; where that fails, say why in ``failure``."""
        try:
            return cls(Tracer(probes), None)
        except (EacgmError, OSError) as error:
            return cls(None, str(error))

    @classmethod
    def without(cls, reason: str) -> Tracing:
        """Return one that traces nothing, for this reason."""
        return cls(None, reason)

    def watch(self, pid: int) -> list[LayerCoverage]:
        """Watch a process, anew if it is watched already; return its coverage."""
        layers = self._failed_layers()
        executable_before = executable_kib("", pid) if self._tracer is not None else None
        if self._tracer is not None:
            try:
                if pid in self._watches:
                    # it executed another program: nothing of the old one is mapped any more
                    self._tracer.unwatch(pid)
                layers = self._tracer.watch(pid)
            except (EacgmError, OSError) as error:
                layers = [LayerCoverage(layer=layer, status="failed", reason=str(error)) for layer in LAYERS]
        # what it maps from now on may be seen or not: then the sizes differ and the next refresh looks again
        self._watches[pid] = _Watch(layers, executable_before)
        return layers

    def refresh(self, pid: int) -> list[LayerCoverage]:
        """Attach to what a watched process has loaded since; return its coverage."""
        watch = self._watches[pid]
        if self._tracer is None:
            watch.layers = self._failed_layers()
            return watch.layers
        watch.refreshes += 1
        executable = executable_kib("", pid)
        if executable == watch.executable_kib and watch.refreshes % _FULL_REFRESHES:
            return watch.layers
        watch.executable_kib = executable
        try:
            watch.layers = self._tracer.refresh(pid)
        except (EacgmError, OSError):
            # it is ending: what was attached last stays true
            return watch.layers
        return watch.layers

    def unwatch(self, pid: int) -> None:
        """Forget a process."""
        self._watches.pop(pid, None)
        if self._tracer is not None:
            self._tracer.unwatch(pid)

    def collect(self, now_ns: int) -> Seen:
        """End the interval (UTC ns) and return what was seen in it."""
        if self._tracer is None:
            return Seen()
        try:
            collection = self._tracer.collect(now_ns)
        except (EacgmError, OSError) as error:
            self.failure = str(error)
            self._detach()
            return Seen()
        exits = {item.pid: item.exit_code for item in collection.lifecycles if item.kind == "exit"}
        executed = {item.pid for item in collection.lifecycles if item.kind == "exec"}
        unattributed = collection.unattributed_retransmits
        return Seen(
            observations=collection.observations,
            exits=exits,
            executed=executed,
            lost=collection.lost_lifecycles,
            unattributed_retransmits=None if unattributed is None else float(unattributed),
        )

    def shed(self, group: str, reason: str) -> None:
        """Take a group of probes off; the next ``refresh`` of each process tells its coverage."""
        if self._tracer is not None:
            self._tracer.shed(group, reason)
            self._look_again()

    def restore(self, group: str) -> None:
        """Let a group of probes come back, as each process is refreshed."""
        if self._tracer is not None:
            self._tracer.restore(group)
            self._look_again()

    def _look_again(self) -> None:
        for watch in self._watches.values():
            watch.executable_kib = None

    def probe_seconds(self, observations: Iterable[Observation]) -> dict[str, float]:
        """Return the CPU time that the probes took from the observed processes, estimated, by group."""
        return self._tracer.probe_seconds(observations) if self._tracer is not None else {}

    def close(self) -> None:
        """Detach everything."""
        if self._tracer is not None:
            self.failure = "tracing has ended"
            self._detach()

    def _detach(self) -> None:
        tracer, self._tracer = self._tracer, None
        if tracer is not None:
            tracer.close()

    def _failed_layers(self) -> list[LayerCoverage]:
        return [LayerCoverage(layer=layer, status="failed", reason=self.failure or "") for layer in LAYERS]


def trains(observation: Observation) -> bool:
    """Return whether a process was seen to train: a collective of its own, or a backward."""
    names = observation.calls.function
    backwards = [row for row, name in enumerate(names) if name == "backward"]
    called = observation.calls.count + observation.calls.open_count
    return len(observation.collectives.call_sequence) > 0 or any(called[row] > 0 for row in backwards)
