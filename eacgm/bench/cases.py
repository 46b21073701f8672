"""A folder of replay cases: each is imported, replayed through the pipeline from a cold start, and judged.

A case is a folder with ``telemetry.csv.gz`` (or ``.csv``, ``.parquet``: a long table) and ``expected.json``.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from eacgm.bench.verdict import SECOND_NS, Expectation, ExpectedAlert, Verdict, judge
from eacgm.config import Config
from eacgm.errors import InputError
from eacgm.events import AlertEvent
from eacgm.producers.table import ImportStatistics, table_events
from eacgm.schemas.recording import RecordingReader, RecordingWriter
from eacgm.streams.replay import replay

EXPECTED = "expected.json"
TELEMETRY = ("telemetry.csv.gz", "telemetry.csv", "telemetry.parquet")
_PR_SET_PDEATHSIG = 1
#: a larger file of expectations is none
MAX_EXPECTED_BYTES = 1_000_000


def find_cases(folder: Path) -> list[Path]:
    """Return the cases in a folder, by name; the folder may be a case itself.

    Raises ``InputError`` if there is none or one lacks its telemetry.
    """
    if not folder.is_dir():
        raise InputError("no such folder; expected a folder of cases", path=str(folder))
    found = [folder] if (folder / EXPECTED).is_file() else sorted(p.parent for p in folder.glob(f"*/{EXPECTED}"))
    if not found:
        raise InputError(f"holds no case; expected folders with {EXPECTED} and {TELEMETRY[0]}", path=str(folder))
    for case in found:
        telemetry_of(case)
    return found


def telemetry_of(case: Path) -> Path:
    """Return a case's table; raises ``InputError`` if it has none."""
    for name in TELEMETRY:
        if (case / name).is_file():
            return case / name
    raise InputError(f"has no telemetry; expected {TELEMETRY[0]}", path=str(case))


def read_expectation(path: Path) -> Expectation:
    """Return what a case expects; raises ``InputError`` for a file that does not say it."""
    try:
        if path.stat().st_size > MAX_EXPECTED_BYTES:
            raise InputError(
                f"is larger than {MAX_EXPECTED_BYTES:,} bytes; expected a case's expectations", path=str(path)
            )
        text = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror}); expected a case's expectations", path=str(path)) from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"is no JSON ({error})", path=str(path)) from None
    try:
        return Expectation(
            alerts=tuple(_expected_alert(alert) for alert in text["alerts"]),
            max_incidents=_whole(text["max_incidents"]),
            forbidden_causes=tuple(str(cause) for cause in text["forbidden_causes"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        wanted = "alerts (cause, ranks, onset_s, max_delay_s), max_incidents, forbidden_causes"
        message = f"does not say what a case needs ({type(error).__name__}: {error}); expected {wanted}"
        raise InputError(message, path=str(path)) from None


def _expected_alert(alert: Any) -> ExpectedAlert:
    ranks = alert["ranks"]
    return ExpectedAlert(
        causes=tuple(str(cause) for cause in alert["cause"]),
        ranks=None if ranks is None else tuple(_whole(rank) for rank in ranks),
        onset_s=_finite(alert["onset_s"]),
        max_delay_s=_finite(alert["max_delay_s"]),
    )


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is no number of seconds")
    return number


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is no whole number")
    return value


def run_case(case: Path, config: Config, folders: list[Path] | None = None) -> Verdict:
    """Import, replay and judge one case; its name is the job's. Its temporary folder is put into ``folders``."""
    expected = read_expectation(case / EXPECTED)
    statistics = ImportStatistics()
    with _temporary_folder([] if folders is None else folders) as temporary:
        recording = temporary / "recording"
        with RecordingWriter(recording) as writer:
            for event in table_events([telemetry_of(case)], case.name, statistics):
                writer.write(event)
        replayed = replay(RecordingReader(recording), config)
        alerts = [event for event in replayed if isinstance(event, AlertEvent)]
    seconds = ((statistics.last_ns or 0) - (statistics.first_ns or 0)) / SECOND_NS
    return judge(case.name, expected, alerts, seconds)


@contextmanager
def _temporary_folder(folders: list[Path]) -> Iterator[Path]:
    """Yield a folder that is removed at the end; SIGTERM waits while it is being made and while it is removed."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    folder = tempfile.TemporaryDirectory(prefix="eacgm-case-")
    folders.append(Path(folder.name))
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield Path(folder.name)
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        folder.cleanup()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_cases(
    cases: Sequence[Path], config: Config, processes: int = 2, on_case: Callable[[Verdict], None] = lambda _: None
) -> list[Verdict]:
    """Run cases in parallel processes; the verdicts come in the order of the cases.

    ``on_case`` is called with each verdict in that order.
    """
    verdicts: list[Verdict] = []
    before = set(active_children())
    # spawned, not forked: BLAS threads and locks of this process must not be copied into the workers
    pool = ProcessPoolExecutor(
        min(processes, len(cases)),
        mp_context=get_context("spawn"),
        initializer=_end_with_parent,
        initargs=(os.getpid(),),
    )
    try:
        for verdict in pool.map(_run_or_end, cases, [config] * len(cases)):
            verdicts.append(verdict)
            on_case(verdict)
    except BaseException:
        # nobody waits for the verdicts any more: the workers end now, not after the last case
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in set(active_children()) - before:
            worker.terminate()
        raise
    pool.shutdown()
    return verdicts


def _end_with_parent(parent: int) -> None:
    """Make a worker end on SIGTERM and when its parent is gone, even by SIGKILL."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)  # it went before the kernel was asked


def _run_or_end(case: Path, config: Config) -> Verdict:
    """Run a case; if the worker is told to end meanwhile, it does so once the temporary folder is gone."""
    signal.signal(signal.SIGTERM, _end)
    folders: list[Path] = []
    try:
        return run_case(case, config, folders)
    except SystemExit as order:
        for folder in folders:  # the order may have come while it was being removed
            shutil.rmtree(folder, ignore_errors=True)
        # the pool would take it for the case's failure and go on with the next one
        os._exit(int(order.code or 0))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    # once is enough: a second order would come in the way of tidying up after the first
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)
