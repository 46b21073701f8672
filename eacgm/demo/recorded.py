"""The demo performed from a recording of an earlier live one: same events, same pipeline, same verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from eacgm.config import Config
from eacgm.demo.play import Act, Play, Verdict
from eacgm.demo.screen import Screen
from eacgm.demo.stage import PROGRAMME, activity, show_alert, warm_up_line
from eacgm.errors import InputError, UnsupportedError
from eacgm.events import AlertEvent, Event, FrameEvent
from eacgm.schemas.recording import RecordingReader
from eacgm.streams.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Programme:
    """What was done to the recorded job, and when (UTC ns); ``planted_ns`` and ``stopped_ns`` are None for ``none``."""

    fault: str
    rank: int
    n_ranks: int
    description: str
    torch_version: str
    started_ns: int
    planted_ns: int | None
    stopped_ns: int | None


def read_programme(recording: Path) -> Programme:
    """Return a recorded demo's programme; raises ``InputError`` if the folder holds none that can be read."""
    path = recording / PROGRAMME
    try:
        return Programme(**json.loads(path.read_text(encoding="utf-8")))
    except OSError:
        raise InputError("no such file; expected a recording made by eacgm demo --record", path=str(path)) from None
    except (ValueError, TypeError) as error:
        raise InputError(f"is no demo's programme ({error})", path=str(path)) from None


def shipped() -> list[str]:
    """Return the faults of which a recording is shipped."""
    folder = files("eacgm").joinpath("data")
    if not folder.is_dir():
        return []
    names = (entry.name for entry in folder.iterdir())
    return sorted(n.removeprefix("demo-").removesuffix(".recording") for n in names if n.endswith(".recording"))


@contextmanager
def shipped_recording(fault: str) -> Iterator[Path]:
    """Yield the folder of the shipped recording of a fault; raises ``UnsupportedError`` if there is none."""
    if fault not in shipped():
        raise UnsupportedError(
            f"no recording of the fault {fault!r} is shipped; there are: {', '.join(shipped()) or 'none'}"
        )
    with as_file(files("eacgm").joinpath("data", f"demo-{fault}.recording")) as folder:
        yield folder


class Projection:
    """Shows one recorded demo on a screen; ``speed`` is recorded seconds a second, None as fast as it goes."""

    def __init__(self, recording: Path, config: Config, screen: Screen, speed: float | None = None) -> None:
        self._recording = recording
        self._config = config
        self._screen = screen
        self._speed = speed
        self._pipeline = Pipeline(config)

    def perform(self) -> Verdict:
        """Push the recording through the pipeline, telling the faults when they were planted.

        Raises ``InputError`` for a recording that cannot be read.
        """
        programme = read_programme(self._recording)
        play = Play(
            programme.fault,
            programme.rank,
            programme.n_ranks,
            self._config.detect.warmup_windows,
            limit_seconds=float("inf"),
            started_ns=programme.started_ns,
        )
        self._screen.say(f"recorded job: {programme.n_ranks} ranks, torch {programme.torch_version}")
        now_ns = 0
        for event in RecordingReader(self._recording):
            if event.published_ns > now_ns:
                self._wait(now_ns, event.published_ns)
                now_ns = event.published_ns
                self._tell_programme(play, programme, now_ns)
            self._screen.see_input(event)
            self._take(play, self._pipeline.push(event), now_ns)
            self._screen.show(activity(play, None))
        self._take(play, self._pipeline.finish(), now_ns)
        return play.verdict()

    def _wait(self, before_ns: int, now_ns: int) -> None:
        if self._speed is not None and before_ns:
            time.sleep(min(1.0, (now_ns - before_ns) / 1e9 / self._speed))

    def _tell_programme(self, play: Play, programme: Programme, now_ns: int) -> None:
        if programme.planted_ns is not None and play.planted_ns is None and now_ns >= programme.planted_ns:
            play.planted(programme.planted_ns)
            self._screen.say(f"FAULT: rank {programme.rank} was now {programme.description}")
        if programme.stopped_ns is not None and play.stopped_ns is None and now_ns >= programme.stopped_ns:
            play.stopped(programme.stopped_ns)
            self._screen.say("fault undone")

    def _take(self, play: Play, outputs: list[Event], now_ns: int) -> None:
        for event in outputs:
            self._screen.see_output(event, self._pipeline.scores(event.job).tolist())
            if isinstance(event, FrameEvent):
                before = play.act
                play.see_frame(event)
                if before is Act.START and play.act is Act.WARM_UP:
                    self._screen.say(warm_up_line(play))
            elif isinstance(event, AlertEvent):
                show_alert(self._screen, play, event, now_ns)
