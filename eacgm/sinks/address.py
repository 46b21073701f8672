"""Where a sink is: its kind and URL, as given on the command line; the URL may be a secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from eacgm.errors import ConfigError

#: kind -> its usual URL, None if one must be given
KINDS: dict[str, str | None] = {
    "alertmanager": None,
    "webhook": None,
    "slack": None,
    "pagerduty": "https://events.pagerduty.com",
}
MOST_SECRET_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Address:
    """A sink's kind and URL; ``str`` shows no more of the URL than scheme and host, since the rest may be a secret."""

    kind: str
    url: str = field(repr=False)

    def __str__(self) -> str:
        """Return what may be shown."""
        parts = urlsplit(self.url)
        return f"{self.kind} at {parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def parse(text: str) -> Address:
    """Return the address that ``KIND=URL`` or ``KIND=@FILE`` names; raises ``ConfigError``.

    A file holds the URL: those of Slack are secrets, which the list of processes would show.

    >>> str(parse("webhook=https://pager.example:8443/hook?token=123"))
    'webhook at https://pager.example:8443'
    >>> parse("pagerduty").url
    'https://events.pagerduty.com'
    """
    kind, _, where = text.partition("=")
    if kind not in KINDS:
        raise ConfigError(f"no sink of kind {kind!r}; expected {', '.join(KINDS)}, as in webhook=https://HOST/PATH")
    url = read_secret(Path(where[1:])) if where.startswith("@") else where or KINDS[kind] or ""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        sound = False
    if not sound or any(sign.isspace() or not sign.isprintable() for sign in url):
        raise ConfigError(f"the sink {kind} needs a URL; expected {kind}=https://HOST/PATH or {kind}=@FILE with it")
    if parts.username or parts.password:
        raise ConfigError(f"the URL of {kind} holds a user or password; expected them in front of it, by a proxy")
    return Address(kind, url)


def read_secret(path: Path) -> str:
    """Return a file's one line; raises ``ConfigError`` where there is none."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_SECRET_BYTES).decode().strip()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); expected a file with one line") from None
    except UnicodeDecodeError:
        text = ""
    if not text or "\n" in text or "\r" in text:
        raise ConfigError(f"{path}: is empty or not one line of text; expected the secret alone")
    return text
