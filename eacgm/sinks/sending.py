"""Sending alerts: what is new is delivered, and what is open is kept open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from eacgm.events import AlertEvent
from eacgm.sinks.courier import Courier
from eacgm.sinks.forms import Form
from eacgm.sinks.incidents import OpenIncidents

#: open incidents are told again this often to a sink that wants it: well before ``forms.FIRING_NS``
REMINDER_NS = 60_000_000_000


class Sending:
    """Sends alerts in their order; ``now_ns`` is the clock (UTC ns)."""

    def __init__(self, form: Form, courier: Courier, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._form = form
        self._courier = courier
        self._now_ns = now_ns
        self._incidents = OpenIncidents()
        self._reminded_ns = 0

    def learn(self, known: Iterable[AlertEvent]) -> None:
        """Take note of alerts that were delivered before."""
        for alert in known:
            self._incidents.step(alert)

    def tell(self, alert: AlertEvent) -> bool:
        """Deliver an alert; return False if told to give up before."""
        posts = self._form.posts(self._incidents.step(alert), self._now_ns())
        return all(self._courier.deliver(post) for post in posts)

    def remind(self) -> bool:
        """Tell again what is open, if it is time to; return False if told to give up before."""
        now_ns = self._now_ns()
        if now_ns - self._reminded_ns < REMINDER_NS:
            return True
        self._reminded_ns = now_ns
        posts = self._form.reminders(self._incidents.alive(now_ns), now_ns)
        return all(self._courier.deliver(post) for post in posts)
