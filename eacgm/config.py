"""Settings of the rooms, with their defaults, units and ranges; read from TOML and from ``--set room.name=value``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from eacgm.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowConfig:
    """Event-time windows: length, and how long a closed window's events may still be on their way."""

    size_ms: int = 1000
    lateness_ms: int = 1000
    #: a job from which nothing has come for this long is closed by the clock
    idle_ms: int = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinConfig:
    """How ranks are put side by side."""

    #: higher rank numbers are refused, and counted
    max_ranks: int = 65_536
    #: windows that a collective may wait for its last rank
    match_windows: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureConfig:
    """The incremental Gaussian mixture (numbers of rows are rank-windows)."""

    max_components: int = 8
    forgetting: float = 0.99998
    degrees_of_freedom: float = 8.0
    refit_every_windows: int = 1800
    reservoir_rows: int = 3_000
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectConfig:
    """When an unusual window becomes an anomaly."""

    false_alarms_per_day: float = 1.0
    warmup_windows: int = 40
    persistence_windows: int = 3
    persistence_of: int = 5
    #: no collective or step for this long while peers wait is a hang, unless the job's own past says otherwise
    hang_seconds: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertConfig:
    """When incidents open, merge and resolve."""

    resolve_windows: int = 8
    update_windows: int = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings; ``Config()`` is the default of every command."""

    window: WindowConfig = field(default_factory=WindowConfig)
    join: JoinConfig = field(default_factory=JoinConfig)
    mixture: MixtureConfig = field(default_factory=MixtureConfig)
    detect: DetectConfig = field(default_factory=DetectConfig)
    alert: AlertConfig = field(default_factory=AlertConfig)


#: (setting, lowest, highest); both ends allowed
RANGES: dict[str, tuple[float, float]] = {
    "window.size_ms": (100, 60_000),
    "window.lateness_ms": (0, 600_000),
    "window.idle_ms": (1000, 86_400_000),
    "join.max_ranks": (1, 1_000_000),
    "join.match_windows": (1, 600),
    "mixture.max_components": (1, 32),
    "mixture.forgetting": (0.9, 1.0),
    "mixture.degrees_of_freedom": (1, 1000),
    "mixture.refit_every_windows": (10, 1_000_000),
    "mixture.reservoir_rows": (100, 1_000_000),
    "mixture.seed": (0, 2**31),
    "detect.false_alarms_per_day": (0.001, 10_000),
    "detect.warmup_windows": (5, 100_000),
    "detect.persistence_windows": (1, 100),
    "detect.persistence_of": (1, 100),
    "detect.hang_seconds": (1, 86_400),
    "alert.resolve_windows": (1, 10_000),
    "alert.update_windows": (1, 100_000),
}


def load(path: Path | None = None, settings: Iterable[str] = ()) -> Config:
    """Return the defaults, changed by a TOML file and then by ``room.name=value`` settings.

    Raises ``ConfigError`` for an unreadable file, an unknown setting or a value out of range,
    alone or together with another.

    >>> load(settings=["detect.false_alarms_per_day=0.5"]).detect.false_alarms_per_day
    0.5
    """
    config = Config()
    if path is not None:
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror}); expected a TOML file of settings") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: not TOML ({error})") from None
        for room, values in table.items():
            if not isinstance(values, dict):
                raise ConfigError(f"{path}: {room!r} stands outside a [room]; expected one of {_rooms()}")
            for name, value in values.items():
                config = _set(config, f"{room}.{name}", value, f"{path}: ")
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"setting {setting!r} has no value; expected room.name=value")
        config = _set(config, key.strip(), text.strip(), "")
    needed, window = config.detect.persistence_windows, config.detect.persistence_of
    if needed > window:
        raise ConfigError(
            f"detect.persistence_windows is {needed} of {window} (detect.persistence_of), which never happens; "
            f"expected at most {window}"
        )
    return config


def _rooms() -> str:
    return ", ".join(f.name for f in fields(Config))


def _set(config: Config, key: str, value: Any, where: str) -> Config:
    room_name, _, name = key.partition(".")
    room = getattr(config, room_name, None) if room_name in {f.name for f in fields(Config)} else None
    if room is None or name not in {f.name for f in fields(room)}:
        known = ", ".join(sorted(RANGES))
        raise ConfigError(f"{where}unknown setting {key!r}; expected one of {known}")
    kind = type(getattr(room, name))
    low, high = RANGES[key]
    try:
        if isinstance(value, bool) or (kind is int and isinstance(value, float)):
            raise ValueError
        number = kind(value)
    except (TypeError, ValueError):
        number = None
    if number is None or not low <= number <= high:
        raise ConfigError(f"{where}{key} is {value!r}; expected a {kind.__name__} from {low:g} to {high:g}")
    return replace(config, **{room_name: replace(room, **{name: number})})
