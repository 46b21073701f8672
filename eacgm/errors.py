"""Every error that eACGM raises on purpose.

::

    EacgmError                  exit status 1
    ├── UsageError              exit status 2: the call's words are off
    ├── ConfigError             a setting has a value that cannot be
    ├── InputError              a file or message holds what cannot be read; says the file and the place
    │   └── DecodeError         bytes that are no event of ours
    ├── UnsupportedError        this machine lacks what is needed; says what, and how to mend it
    ├── ProbeError              the kernel refused a program, a map or an attachment
    ├── BrokerError             Kafka cannot be reached, or refuses us
    └── RegistryError           the schema registry cannot be reached, or refuses a schema

Each message is one line: what happened, what was expected, what to do.
"""


class EacgmError(Exception):
    """The root of all errors that a user may see; the text is one line."""

    exit_code = 1


class UsageError(EacgmError):
    """A command was called with words that do not fit."""

    exit_code = 2


class ConfigError(EacgmError):
    """A setting is unknown or out of its range."""


class InputError(EacgmError):
    """A file or message cannot be read.

    ``path`` is the file (or topic), ``place`` where in it (``line 7``, ``record 3``), both part of the text.
    """

    def __init__(self, message: str, *, path: str | None = None, place: str | None = None) -> None:
        where = ": ".join(part for part in (path, place) if part)
        super().__init__(f"{where}: {message}" if where else message)
        self.path = path
        self.place = place


class DecodeError(InputError):
    """Bytes are no event of ours: wrong framing, unknown fingerprint, truncated or too large."""


class UnsupportedError(EacgmError):
    """This machine lacks something; the text names it and the command that mends it."""


class ProbeError(EacgmError):
    """The kernel refused a program, a map or an attachment; the text says which and why."""


class BrokerError(EacgmError):
    """Kafka cannot be reached, or refuses us; the text says who was asked and what to look at."""


class RegistryError(EacgmError):
    """The schema registry cannot be reached, or refuses a schema; the text says why."""
