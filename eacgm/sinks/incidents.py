"""Which incidents are open, and what of an alert is news."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from eacgm.events import AlertEvent

#: an incident of which nothing was heard for so long is not kept open any more: its worker or job is gone
LONGEST_SILENCE_NS = 24 * 3_600_000_000_000
MOST_INCIDENTS = 100_000


@dataclass(frozen=True, slots=True)
class Step:
    """An alert, and what was said before of the same incident (None: nothing)."""

    alert: AlertEvent
    before: AlertEvent | None

    @property
    def news(self) -> bool:
        """Whether a person should hear of it: it opens, resolves, or says something else than before."""
        return self.before is None or _gist(self.before) != _gist(self.alert)


class OpenIncidents:
    """The last alert of each open incident, the oldest heard of first."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, AlertEvent] = OrderedDict()

    def step(self, alert: AlertEvent) -> Step:
        """Take note of an alert; return it with what was said before of its incident."""
        before = self._open.pop(alert.incident, None)
        if alert.state != "resolved":
            self._open[alert.incident] = alert
            if len(self._open) > MOST_INCIDENTS:
                self._open.popitem(last=False)
        return Step(alert, before)

    def alive(self, now_ns: int) -> list[AlertEvent]:
        """Return the open incidents' last alerts; those long silent are dropped."""
        limit_ns = now_ns - LONGEST_SILENCE_NS
        for incident in [name for name, alert in self._open.items() if alert.published_ns < limit_ns]:
            del self._open[incident]
        return list(self._open.values())


def _gist(alert: AlertEvent) -> tuple[object, ...]:
    return alert.state == "resolved", alert.cause, alert.severity, alert.ranks.tolist()
