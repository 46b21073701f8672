"""How to reach Kafka and the schema registry: addresses, TLS, credentials; from the environment, files and options."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from eacgm.errors import ConfigError
from eacgm.kafka.token import token_and_expiry, token_source
from eacgm.schemas.registry import RegistryAddress

if TYPE_CHECKING:
    from faust.types.auth import CredentialsT

PREFIX = "EACGM_KAFKA_"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
#: no secret file is larger; a device or a log given by mistake is
MAX_SECRET_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where the brokers are and who we are to them.

    ``bootstrap`` is ``HOST:PORT[,HOST:PORT...]``. ``protocol`` is one of ``PROTOCOLS``; left empty it follows from the
    rest: credentials mean SASL_SSL, an authority or a certificate SSL. ``mechanism`` is one of ``MECHANISMS``; left
    empty it is OAUTHBEARER with a token, else SCRAM-SHA-512. ``token_file`` is read anew for every token, so that
    whoever rotates it is followed. ``authority``, ``certificate`` and ``key`` are PEM files. Secrets are in no repr.
    Raises ``ConfigError`` for what does not fit together.
    """

    bootstrap: str
    protocol: str = ""
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    token_file: str = ""
    authority: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    registry: RegistryAddress | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "bootstrap", ",".join(_addresses(self.bootstrap)))
        object.__setattr__(self, "protocol", self.protocol.upper() or self._usual_protocol())
        if self.sasl:
            usual = "OAUTHBEARER" if self._has_token else "SCRAM-SHA-512"
            object.__setattr__(self, "mechanism", self.mechanism.upper() or usual)
        self._check()

    @property
    def sasl(self) -> bool:
        """Whether we say who we are by SASL."""
        return self.protocol.startswith("SASL")

    @property
    def encrypted(self) -> bool:
        """Whether the connection is TLS."""
        return self.protocol.endswith("SSL")

    @property
    def _has_token(self) -> bool:
        return bool(self.token or self.token_file)

    def _usual_protocol(self) -> str:
        if self.user or self._has_token:
            return "SASL_SSL"
        return "SSL" if self.authority or self.certificate else "PLAINTEXT"

    def _check(self) -> None:
        _expect(self.protocol, PROTOCOLS, "security protocol")
        if self.sasl:
            _expect(self.mechanism, MECHANISMS, "SASL mechanism")
            if self.mechanism == "OAUTHBEARER":
                _need(self._has_token, "OAUTHBEARER needs a token", "TOKEN_FILE")
            else:
                _need(bool(self.user), f"{self.mechanism} needs a user", "USER")
                _need(bool(self.password), f"{self.mechanism} needs a password", "PASSWORD_FILE")
        elif self.user or self._has_token:
            raise ConfigError(f"{self.protocol} sends no credentials; expected SASL_SSL with a user or a token")
        if not self.encrypted and (self.authority or self.certificate):
            raise ConfigError(f"{self.protocol} is not encrypted; expected SSL or SASL_SSL with certificates")
        _need(bool(self.certificate) == bool(self.key), "a client certificate and its key go together", "KEY")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **given: str | None) -> Self:
        """Return the connection that EACGM_KAFKA_* describe; what is ``given`` and not None comes first.

        NAME_FILE names a file that holds NAME's value. Raises ``ConfigError``, also where no address is known.
        """
        variables = os.environ if environment is None else environment

        def setting(name: str, attribute: str = "") -> str:
            value = given.get(attribute or name.lower())
            return value if value is not None else _variable(variables, PREFIX + name)

        bootstrap = setting("BOOTSTRAP")
        _need(bool(bootstrap), "no address of Kafka is known", "BOOTSTRAP", option="--bootstrap HOST:PORT")
        token_file = given.get("token_file") or variables.get(f"{PREFIX}TOKEN_FILE", "")
        connection = cls(
            bootstrap=bootstrap,
            protocol=setting("PROTOCOL"),
            mechanism=setting("MECHANISM"),
            user=setting("USER"),
            password=_given_secret(given.get("password_file")) or setting("PASSWORD"),
            token="" if token_file else setting("TOKEN"),
            token_file=token_file,
            authority=setting("CA", "authority"),
            certificate=setting("CERTIFICATE"),
            key=setting("KEY"),
            key_password=setting("KEY_PASSWORD"),
        )
        url = setting("REGISTRY")
        if not url:
            return connection
        address = RegistryAddress(
            url=url,
            user=setting("REGISTRY_USER"),
            password=setting("REGISTRY_PASSWORD"),
            authority=setting("REGISTRY_CA"),
        )
        return replace(connection, registry=address)

    def librdkafka(self) -> dict[str, Any]:
        """Return librdkafka's settings, secrets included: for clients only, never for logs.

        Raises ``ConfigError`` for a file that cannot be read.
        """
        settings: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "security.protocol": self.protocol}
        if self.encrypted:
            files = {"ca": self.authority, "certificate": self.certificate, "key": self.key}
            settings |= {f"ssl.{name}.location": _readable(path) for name, path in files.items() if path}
            if self.key_password:
                settings["ssl.key.password"] = self.key_password
        if self.sasl:
            settings["sasl.mechanism"] = self.mechanism
            if self.mechanism == "OAUTHBEARER":
                settings["oauth_cb"] = lambda _: token_and_expiry(self.read_token())
            else:
                settings |= {"sasl.username": self.user, "sasl.password": self.password}
        return settings

    def read_token(self) -> str:
        """Return the bearer token, read anew where it lies in a file; raises ``ConfigError``."""
        return read_secret(self.token_file) if self.token_file else self.token

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS context for Python's own clients, None without TLS; raises ``ConfigError``."""
        if not self.encrypted:
            return None
        try:
            context = ssl.create_default_context(cafile=self.authority or None)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key, self.key_password or None)
        except (OSError, ssl.SSLError) as error:
            named = ", ".join(path for path in (self.authority, self.certificate, self.key) if path)
            raise ConfigError(f"the certificates {named} cannot be used: {error}; expected PEM files") from None
        return context

    def aiokafka(self) -> dict[str, Any]:
        """Return the keyword arguments of aiokafka's clients; raises ``ConfigError``."""
        settings: dict[str, Any] = {"bootstrap_servers": self.bootstrap, "security_protocol": self.protocol}
        if self.encrypted:
            settings["ssl_context"] = self.ssl_context()
        if self.sasl:
            settings["sasl_mechanism"] = self.mechanism
            if self.mechanism == "OAUTHBEARER":
                settings["sasl_oauth_token_provider"] = token_source(self.read_token)
            else:
                settings |= {"sasl_plain_username": self.user, "sasl_plain_password": self.password}
        return settings

    def faust_broker(self) -> str:
        """Return the brokers as Faust wants them.

        >>> Connection(bootstrap="a:9092,b:9092").faust_broker()
        'kafka://a:9092;kafka://b:9092'
        """
        return ";".join(f"kafka://{address}" for address in self.bootstrap.split(","))

    def faust_credentials(self) -> CredentialsT | None:
        """Return Faust's ``broker_credentials``, None for PLAINTEXT; raises ``ConfigError``."""
        from faust import auth

        context = self.ssl_context()
        if not self.sasl:
            return auth.SSLCredentials(context) if context is not None else None
        if self.mechanism == "OAUTHBEARER":
            return auth.OAuthCredentials(oauth_cb=token_source(self.read_token), ssl_context=context)
        return auth.SASLCredentials(
            username=self.user, password=self.password, mechanism=self.mechanism, ssl_context=context
        )


def read_secret(path: str) -> str:
    """Return a secret file's text without the line's end; raises ``ConfigError``."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
        text = content.decode().strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the secret's file {path} cannot be read: {error}") from None
    if not text or len(content) > MAX_SECRET_BYTES:
        raise ConfigError(f"the secret's file {path} holds {len(content)} bytes; expected one line")
    return text


def _given_secret(path: str | None) -> str:
    return read_secret(path) if path else ""


def _variable(variables: Mapping[str, str], name: str) -> str:
    value, path = variables.get(name, ""), variables.get(f"{name}_FILE", "")
    if value and path:
        raise ConfigError(f"both {name} and {name}_FILE are set; expected one of them")
    return read_secret(path) if path else value


def _addresses(bootstrap: str) -> list[str]:
    found = [part.strip() for part in bootstrap.split(",") if part.strip()]
    for address in found:
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 65536) or "/" in address:
            raise ConfigError(f"{address!r} is no address of a broker; expected HOST:PORT[,HOST:PORT...]")
    _need(bool(found), "no address of Kafka is known", "BOOTSTRAP", option="--bootstrap HOST:PORT")
    return found


def _readable(path: str) -> str:
    if not os.access(path, os.R_OK):
        raise ConfigError(f"the certificate's file {path} cannot be read; expected a PEM file")
    return path


def _expect(value: str, known: tuple[str, ...], what: str) -> None:
    if value not in known:
        raise ConfigError(f"{value!r} is no {what}; expected one of {', '.join(known)}")


def _need(given: bool, what: str, variable: str, option: str = "") -> None:
    if not given:
        how = f"{option}, or set {PREFIX}{variable}" if option else f"set {PREFIX}{variable}"
        raise ConfigError(f"{what}; {'give' if option else 'expected both:'} {how}")
