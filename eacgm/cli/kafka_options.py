"""Options of every command that speaks Kafka; each can come from the environment (EACGM_KAFKA_*) instead."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from eacgm.errors import ConfigError

Command = Callable[..., Any]

#: option, metavar, help; the connection's own names are the options' with underscores
_OPTIONS = (
    ("--bootstrap", "HOST:PORT,...", "Kafka's brokers [EACGM_KAFKA_BOOTSTRAP]."),
    ("--registry", "URL", "Schema registry; without one messages carry a fingerprint [EACGM_KAFKA_REGISTRY]."),
    ("--protocol", "PROTOCOL", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL [EACGM_KAFKA_PROTOCOL]."),
    ("--mechanism", "NAME", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER [EACGM_KAFKA_MECHANISM]."),
    ("--user", "NAME", "SASL user [EACGM_KAFKA_USER]."),
    ("--password-file", "FILE", "File with the user's password [EACGM_KAFKA_PASSWORD_FILE]."),
    ("--token-file", "FILE", "File with the bearer token, read anew for each [EACGM_KAFKA_TOKEN_FILE]."),
    ("--ca", "FILE", "Authority that signed the brokers' certificates, PEM [EACGM_KAFKA_CA]."),
    ("--certificate", "FILE", "Our own certificate, PEM [EACGM_KAFKA_CERTIFICATE]."),
    ("--key", "FILE", "Its key, PEM [EACGM_KAFKA_KEY]."),
)


def kafka_options(command: Command) -> Command:
    """Add the options of a connection; the command gets ``connection: Connection``."""

    @wraps(command)
    def connected(*arguments: Any, **options: Any) -> Any:
        from eacgm.kafka.connection import Connection

        given = {name: options.pop(name) for name, *_ in map(_words, _OPTIONS)}
        given["authority"] = given.pop("ca")
        try:
            connection = Connection.from_environment(**given)
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
        return command(*arguments, connection=connection, **options)

    for option, metavar, text in reversed(_OPTIONS):
        connected = click.option(option, metavar=metavar, help=text)(connected)
    return connected


def _words(option: tuple[str, str, str]) -> tuple[str, str, str]:
    name, metavar, text = option
    return name.removeprefix("--").replace("-", "_"), metavar, text
