"""The schema registry (Confluent's interface): ids of our schemas, and the schemas of others' ids."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from eacgm.errors import ConfigError, DecodeError, RegistryError
from eacgm.schemas.store import Schema, schemas
from eacgm.schemas.writer import Writer, writer_of

#: a request that takes longer has failed; the agent must not stand still for a registry
TIMEOUT_SECONDS = 3.0
#: after a failure nothing is asked for this long
PAUSE_SECONDS = 10.0
#: ids that the registry does not know; more than these are forgotten and asked for again
MAX_UNKNOWN = 1000
MAX_KNOWN = 10_000
#: what our subjects promise: old readers read new messages and new readers old ones
COMPATIBILITY = "FULL_TRANSITIVE"
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAddress:
    """Where the registry is and who we are to it; the password is in no repr."""

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    authority: str = ""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"{self.url!r} is no registry; expected http://HOST:PORT or https://HOST:PORT")
        if "@" in self.url:
            raise ConfigError("the registry's address holds a password; set EACGM_KAFKA_REGISTRY_USER and _PASSWORD")


class Registry:
    """A registry's client that asks once: ids and schemas are kept, failures are not repeated at once.

    ``clock`` returns seconds and only goes forwards.
    """

    def __init__(self, address: RegistryAddress, clock: Callable[[], float] = time.monotonic) -> None:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        settings: dict[str, Any] = {"url": address.url, "timeout": TIMEOUT_SECONDS, "max.retries": 0}
        if address.user:
            settings["basic.auth.user.info"] = f"{address.user}:{address.password}"
        if address.authority:
            settings["ssl.ca.location"] = address.authority
        self._address = address
        self._client = SchemaRegistryClient(settings)
        self._clock = clock
        self._ids: dict[str, int] = {}
        self._writers: dict[int, Writer] = {}
        self._unknown: dict[int, float] = {}
        self._paused_until = float("-inf")
        #: requests that failed because the registry was not to be had
        self.failures = 0

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def id_of(self, schema: Schema) -> int:
        """Return the id of one of our schemas in subject ``<topic>-value``, registering it the first time.

        Raises ``RegistryError`` where the registry is away or refuses the schema.
        """
        known = self._ids.get(schema.topic)
        if known is None:
            known = self._ids[schema.topic] = self._register(schema)
            # what we write we can read, also while the registry is away
            self._writers[known] = Writer(schema.parsed, schema, same=True)
        return known

    def promise(self, schema: Schema) -> None:
        """Have the registry refuse incompatible schemas for a topic; raises ``RegistryError``."""
        self._ask(lambda: self._client.set_compatibility(subject(schema.topic), COMPATIBILITY))

    def writer(self, schema_id: int) -> Writer:
        """Return the schema behind an id of the registry.

        Raises ``DecodeError`` for an id that it does not know or a schema that is not ours, ``RegistryError`` where it
        is away: the message may then be read later.
        """
        known = self._writers.get(schema_id)
        if known is not None:
            return known
        if self._clock() < self._unknown.get(schema_id, float("-inf")):
            raise _no_such(schema_id)
        try:
            found = self._ask(lambda: self._client.get_schema(schema_id))
        except RegistryError as error:
            if _status(error.__cause__) == _NOT_FOUND:
                self._forget(schema_id)
                raise _no_such(schema_id) from None
            raise
        if found.schema_type != "AVRO" or found.references:
            raise DecodeError(f"schema {schema_id} of the registry is {found.schema_type}; expected one Avro schema")
        if len(self._writers) >= MAX_KNOWN:
            self._writers.clear()
        writer = self._writers[schema_id] = writer_of(found.schema_str)
        return writer

    def registered(self, topic: str) -> str | None:
        """Return the text of a topic's latest schema, None where it has none; raises ``RegistryError``."""
        try:
            return str(self._ask(lambda: self._client.get_latest_version(subject(topic))).schema.schema_str)
        except RegistryError as error:
            if _status(error.__cause__) == _NOT_FOUND:
                return None
            raise

    def _register(self, schema: Schema) -> int:
        from confluent_kafka.schema_registry import Schema as Registered

        name = subject(schema.topic)
        return int(self._ask(lambda: self._client.register_schema(name, Registered(schema.text, "AVRO"))))

    def _ask(self, question: Callable[[], Any]) -> Any:
        if self._clock() < self._paused_until:
            raise RegistryError(f"the registry {self._address.url} was not to be had a moment ago; asked again soon")
        try:
            return question()
        except Exception as error:
            status = _status(error)
            if status is None or status >= 500:
                self.failures += 1
                self._paused_until = self._clock() + PAUSE_SECONDS
                raise RegistryError(
                    f"the registry {self._address.url} cannot be had ({_line(error)}); check its address"
                ) from error
            raise RegistryError(f"the registry {self._address.url} refuses ({_line(error)})") from error

    def _forget(self, schema_id: int) -> None:
        if len(self._unknown) >= MAX_UNKNOWN:
            self._unknown.clear()
        self._unknown[schema_id] = self._clock() + PAUSE_SECONDS


def subject(topic: str) -> str:
    """Return the registry's name for a topic's values (TopicNameStrategy).

    >>> subject("eacgm.alerts.v1")
    'eacgm.alerts.v1-value'
    """
    return f"{topic}-value"


def register_all(registry: Registry) -> dict[str, int]:
    """Register every schema of ours and have the registry keep them compatible; returns the ids by topic.

    Raises ``RegistryError``.
    """
    found = {}
    for topic, schema in schemas().items():
        found[topic] = registry.id_of(schema)
        registry.promise(schema)
    return found


def _no_such(schema_id: int) -> DecodeError:
    return DecodeError(f"schema {schema_id} is not in the registry; expected an id that it gave")


def _status(error: BaseException | None) -> int | None:
    """Return the HTTP status of the registry's answer, None where it gave none."""
    status = getattr(error, "http_status_code", None)
    return status if isinstance(status, int) and status > 0 else None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
