"""What the demo shows itself on; the command line has one for people and one for machines."""

from __future__ import annotations

from typing import Protocol

from eacgm.events import AlertEvent, Event


class Screen(Protocol):
    """Where a performance is shown."""

    def say(self, text: str) -> None:
        """Tell one line about the demo itself."""

    def alert(self, alert: AlertEvent, delay_seconds: float | None) -> None:
        """Tell an alert, and how long after the fault it came."""

    def see_input(self, event: Event) -> None:
        """Count a message on its way into the pipeline."""

    def see_output(self, event: Event, scores: list[float]) -> None:
        """Take note of a frame or an alert; ``scores`` are the ranks' newest."""

    def show(self, activity: str) -> None:
        """Refresh the live numbers."""
