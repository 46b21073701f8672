"""What an agent tells Prometheus of itself."""

from __future__ import annotations

from collections.abc import Iterator

from eacgm.kafka.outbox import Outbox
from eacgm.metrics import Reading


def agent_readings(outbox: Outbox, n_processes: int, n_events: int) -> Iterator[Reading]:
    """Yield all readings; counters are since the agent began."""
    yield Reading("eacgm_agent_events", "Events published by this agent.", float(n_events))
    yield Reading("eacgm_agent_messages_delivered", "Messages that have arrived.", float(outbox.delivered))
    yield Reading("eacgm_agent_messages_failed", "Messages that the brokers will never take.", float(outbox.failed))
    yield Reading("eacgm_agent_messages_dropped", "Messages for which there was no room.", float(outbox.dropped))
    yield Reading("eacgm_agent_messages_waiting", "Messages that have not arrived yet.", float(outbox.waiting), "gauge")
    yield Reading("eacgm_agent_processes", "Processes being watched.", float(n_processes), "gauge")
