"""What was sent and whether it has arrived: nothing is done with before all that followed from it is on its topic."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, TypeVar

from eacgm.errors import EacgmError

Handle = TypeVar("Handle")

#: a message that has not arrived by then never will
DELIVERY_SECONDS = 30.0


class Deliveries(Generic[Handle]):
    """Messages under way, in the order of sending."""

    def __init__(self) -> None:
        self._sent: list[tuple[Any, Handle | None]] = []

    def add(self, delivery: Any, handle: Handle | None = None) -> None:
        """Know of a delivery under way (an awaitable); ``handle`` is done with as soon as it has arrived."""
        self._sent.append((delivery, handle))

    def clear(self) -> None:
        """Forget what is under way: whether it arrives is nobody's business any more."""
        self._sent.clear()

    async def arrived(self) -> list[Handle]:
        """Wait for all that was sent so far; return the handles that are done with; raises ``EacgmError``."""
        sent, self._sent = self._sent, []
        done: list[Handle] = []
        for delivery, handle in sent:
            await arrival(delivery, "a frame, alert or dead letter")
            if handle is not None:
                done.append(handle)
        return done


async def arrival(delivery: Any, what: str) -> None:
    """Wait for one delivery; raises ``EacgmError`` naming ``what`` could not be delivered."""
    try:
        await asyncio.wait_for(delivery, DELIVERY_SECONDS)
    except Exception as error:
        raise EacgmError(f"{what} could not be delivered ({error!r})") from error
