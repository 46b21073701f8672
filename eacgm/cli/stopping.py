"""Orders to stop: Ctrl-C, SIGTERM and SIGHUP let a command close in order what it has open."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopOrder:
    """An order that a signal handler gives and that the main thread waits for.

    Not threading.Event, whose ``set`` takes a lock: a handler runs in the main thread, which may hold that very lock
    (as each time a wait ends), and would then wait for itself for ever. A pipe needs no lock.
    """

    def __init__(self) -> None:
        self._given = False
        self._reader, self._writer = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)

    def give(self) -> None:
        """Give the order; more than once is as good as once."""
        if not self._given:
            self._given = True
            os.write(self._writer, b"\0")

    def is_set(self) -> bool:
        """Return whether the order was given."""
        return self._given

    def wait(self, seconds: float) -> bool:
        """Wait for the order, at most so many seconds; return whether it was given."""
        # the byte stays in the pipe: whoever waits later returns at once
        self._poll.poll(max(seconds, 0.0) * 1000)
        return self._given

    def close(self) -> None:
        """Let the pipe go; only ``is_set`` may be asked from then on."""
        os.close(self._reader)
        os.close(self._writer)


@contextmanager
def stopped_by_signals() -> Iterator[StopOrder]:
    """Give the order to stop on Ctrl-C, SIGTERM and SIGHUP within the block."""
    stop = StopOrder()

    def order(number: int, frame: FrameType | None) -> None:
        stop.give()

    signs = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup's wish
        signs.append(signal.SIGHUP)
    before = {sign: signal.signal(sign, order) for sign in signs}
    try:
        yield stop
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
        stop.close()
