"""An agent that runs beside something else in one process."""

from __future__ import annotations

import threading
from types import TracebackType

from eacgm.producers.agent import Agent


class AgentThread:
    """Runs an agent in a thread of its own from ``with`` to its end; what ends the agent early is raised there.

    ``failed`` is set as soon as the agent has ended by an error, so that the other side need not wait in vain.
    """

    def __init__(self, agent: Agent) -> None:
        self.failed = threading.Event()
        self._agent = agent
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="agent", daemon=True)

    def _run(self) -> None:
        try:
            self._agent.run(self._stop)
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that can tell the user
            self._error = error
            self.failed.set()

    def __enter__(self) -> AgentThread:
        """Start the agent."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the agent and wait until it has detached; raise what ended it early, unless something else is raised."""
        self._stop.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error
