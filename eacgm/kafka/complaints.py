"""What librdkafka complains of, as one line for people; its own lines on standard error are kept silent."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

from eacgm.errors import BrokerError
from eacgm.kafka.connection import Connection

#: these do not mend themselves by waiting
_REFUSALS = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED})
_SILENT = logging.Logger("librdkafka")
_SILENT.addHandler(logging.NullHandler())


class Complaints:
    """The errors of one client: give ``settings`` to it, poll it, and ask here what is wrong.

    ``say`` is told each new reason once, until ``reached`` is called.
    """

    def __init__(self, connection: Connection, say: Callable[[str], None] | None = None) -> None:
        self._connection = connection
        self._say = say
        self._reason = ""
        self._refused = self._unknown_host = self._all_down = False
        self._said: set[str] = set()

    @property
    def settings(self) -> dict[str, Any]:
        """The part of a client's configuration that brings its errors here and not to standard error."""
        return {"error_cb": self.take, "logger": _SILENT}

    @property
    def reason(self) -> str:
        """Why Kafka is not to be had, one line; empty as long as nothing was heard."""
        return self._reason

    @property
    def hopeless(self) -> bool:
        """Whether waiting will not help: refused credentials or certificates, no known host."""
        return self._refused or (self._unknown_host and self._all_down)

    def take(self, error: KafkaError) -> None:
        """Take one error (librdkafka's ``error_cb``)."""
        code = error.code()
        self._all_down |= code == KafkaError._ALL_BROKERS_DOWN
        self._unknown_host |= code == KafkaError._RESOLVE
        if code == KafkaError._ALL_BROKERS_DOWN and self._reason:
            return
        if self._refused and code not in _REFUSALS:
            return
        self._refused |= code in _REFUSALS
        self._reason = self._explain(error)
        if self._say is not None and self._reason not in self._said:
            self._said.add(self._reason)
            self._say(self._reason)

    def reached(self) -> None:
        """Forget what was: the brokers answer."""
        self._reason = ""
        self._refused = self._unknown_host = self._all_down = False
        self._said.clear()

    def error(self) -> BrokerError:
        """Return what to raise when the brokers did not answer."""
        return BrokerError(self._reason or self._no_answer())

    def _explain(self, error: KafkaError) -> str:
        where, said = _parts(error.str())
        host = where or self._connection.bootstrap
        code = error.code()
        if code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
            whom = f" for user {self._connection.user}" if self._connection.user else ""
            return f"authentication failed{whom} at {host}: {said}; check the credentials and EACGM_KAFKA_MECHANISM"
        if code == KafkaError._SSL or "SSL handshake" in said or "SSL routines" in said:
            return f"no TLS connection to {host}: {said}; check EACGM_KAFKA_CA and EACGM_KAFKA_PROTOCOL"
        if code == KafkaError._RESOLVE:
            return f"the host of {host} is unknown: {said}; check --bootstrap"
        if code == KafkaError._ALL_BROKERS_DOWN:
            return self._no_answer()
        return f"Kafka at {host} does not answer: {said}; check that it runs and --bootstrap"

    def _no_answer(self) -> str:
        protocol = self._connection.protocol
        return (
            f"no broker of {self._connection.bootstrap} answers over {protocol}; "
            f"check --bootstrap, and that its listener speaks {protocol}"
        )


def _parts(text: str) -> tuple[str, str]:
    """Return the broker's address and the complaint, without librdkafka's decorations.

    >>> _parts("sasl_ssl://h:1/bootstrap: SASL authentication error: no such user (after 3ms in state AUTH_REQ)")
    ('h:1', 'SASL authentication error: no such user')
    """
    text = re.sub(r" \(after \d+ms in stat.*$", "", text)
    found = re.match(r"(?:\w+://)?([^/\s]+)/(?:bootstrap|\d+): (.*)$", text, re.DOTALL)
    return (found[1], found[2]) if found else ("", text)
