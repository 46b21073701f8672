"""What a worker writes: frames, alerts and dead letters, each to its topic, all under way until they have arrived."""

from __future__ import annotations

from typing import Any

import faust

from eacgm.events import AlertEvent, DeadLetterEvent, Event, FrameEvent
from eacgm.streams.application import raw_topic
from eacgm.streams.deliveries import Deliveries
from eacgm.streams.holdings import Handle
from eacgm.streams.wire import Wire


class Outputs:
    """The topics written to, and how much was sent to them."""

    def __init__(self, app: faust.App, wire: Wire) -> None:
        self._wire = wire
        self._topics = {
            FrameEvent.topic: raw_topic(app, FrameEvent.topic),
            AlertEvent.topic: raw_topic(app, wire.alerts_topic),
            DeadLetterEvent.topic: raw_topic(app, DeadLetterEvent.topic),
        }
        self._deliveries: Deliveries[Handle] = Deliveries()
        self.n_alerts = self.n_frames = 0

    def send(self, event: Event, handle: Handle | None = None) -> None:
        """Send an event; ``handle`` is done with as soon as it has arrived."""
        self.n_frames += isinstance(event, FrameEvent)
        self.n_alerts += isinstance(event, AlertEvent)
        headers = dict(self._wire.headers(event)) if isinstance(event, AlertEvent) else {}
        topic: Any = self._topics[event.topic]
        delivery = topic.send_soon(key=event.job.encode(), value=self._wire.encode(event), headers=headers, force=True)
        self._deliveries.add(delivery, handle)

    async def arrived(self) -> list[Handle]:
        """Wait for all that was sent so far; return the handles that are done with; raises ``EacgmError``."""
        return await self._deliveries.arrived()

    def forget(self) -> None:
        """Let go of what is under way: whether it arrives is a successor's business."""
        self._deliveries.clear()
