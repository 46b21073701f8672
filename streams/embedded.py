"""The pipeline inside this process: no broker, one machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType

from eacgm.config import Config
from eacgm.events import Event
from eacgm.schemas.recording import RecordingWriter
from eacgm.streams.pipeline import Pipeline
from eacgm.streams.statistics import Statistics

#: what the clock is held back: an event that was published but not yet pushed must not find its job closed
_CLOCK_MARGIN_NS = 2_000_000_000


class EmbeddedShell:
    """Publishes events from any thread into a pipeline, after writing them to a recording if there is one.

    Callbacks are called in the order of the output, under the shell's lock: they must not publish.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        recorder: RecordingWriter | None = None,
        callbacks: Iterable[Callable[[Event], None]] = (),
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.pipeline = Pipeline(config)
        self._recorder = recorder
        self._callbacks = list(callbacks)
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._finished = False

    def publish(self, event: Event) -> None:
        """Record the event and push it through the pipeline; after ``finish`` it is dropped."""
        with self._lock:
            if self._finished:
                return
            if self._recorder is not None:
                self._recorder.write(event)
            self._hand_out(self.pipeline.push(event))

    def tick(self) -> None:
        """Let the clock close what is idle and flush the recording; call it about once a second."""
        with self._lock:
            if self._finished:
                return
            if self._recorder is not None:
                self._recorder.flush()
            self._hand_out(self.pipeline.tick(self._clock_ns() - _CLOCK_MARGIN_NS))

    def finish(self) -> None:
        """Close every window and the recording; does nothing the second time."""
        with self._lock:
            if self._finished:
                return
            self._finished = True
            try:
                self._hand_out(self.pipeline.finish())
            finally:
                if self._recorder is not None:
                    self._recorder.close()

    def statistics(self) -> Statistics:
        """Return what was done so far."""
        with self._lock:
            return self.pipeline.statistics()

    def _hand_out(self, events: list[Event]) -> None:
        for event in events:
            for callback in self._callbacks:
                callback(event)

    def __enter__(self) -> EmbeddedShell:
        """Return the shell itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Finish."""
        self.finish()
