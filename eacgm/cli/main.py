"""The program `eacgm`: finds the command, runs it, and turns every ending into an exit status and one line.

A command is one module of this folder with a click command named ``command``; it is imported only when it is
called, so that ``eacgm --help`` loads neither numpy nor scikit-learn.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import version
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import click

from eacgm.cli import standard_streams
from eacgm.cli.output import printable
from eacgm.errors import EacgmError

#: exit statuses as a shell reports death by SIGINT and by SIGPIPE
INTERRUPTED = 130
BROKEN_PIPE = 141
#: what to do about a refusal of the system's
_REMEDIES = {
    errno.ENOSPC: "make room, or choose another place",
    errno.EDQUOT: "make room, or choose another place",
    errno.EROFS: "choose another place",
    errno.EACCES: "choose another place, or another user",
    errno.EPERM: "choose another place, or another user",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "allow more open files (sysctl fs.file-max)",
    errno.ENOMEM: "allow more memory (ulimit -v)",
    errno.EAGAIN: "allow more processes (ulimit -u)",
}


class Entry(NamedTuple):
    """One command: the module that holds it, and its line in the list of commands."""

    module: str
    summary: str


COMMANDS: dict[str, Entry] = {
    "doctor": Entry("eacgm.cli.doctor", "What works on this machine, and how to mend what does not."),
    "demo": Entry("eacgm.cli.demo", "A real job, a planted fault, the alert: the two-minute tour."),
    "run": Entry("eacgm.cli.run", "Watch this machine's jobs: agent and pipeline in one process."),
    "replay": Entry("eacgm.cli.replay", "Run a recording through the detector and print its alerts."),
    "import": Entry("eacgm.cli.importing", "Turn other tools' data into a recording."),
    "simulate": Entry("eacgm.cli.simulate", "Write the recording of a seeded cluster with planted faults."),
    "agent": Entry("eacgm.cli.agent", "Watch this machine's jobs and send what is seen to Kafka."),
    "worker": Entry("eacgm.cli.worker", "The pipeline on Kafka; more workers of a group share the jobs."),
    "alerts": Entry("eacgm.cli.alerts", "Print the alerts that workers write to Kafka."),
    "publish": Entry("eacgm.cli.publish", "A recording to Kafka, as fast as it was or faster."),
    "record": Entry("eacgm.cli.record", "A stretch of Kafka's topics to a recording."),
    "topics": Entry("eacgm.cli.topics", "Create or check the topics on a Kafka cluster."),
    "bench": Entry("eacgm.cli.bench", "The project's benchmarks, and judging a folder of cases."),
}


class ReaderGoneError(Exception):
    """Whoever read our standard output has closed it; not an error of ours or of theirs."""


class ToldToEndError(BaseException):
    """SIGTERM or SIGHUP came: what is open is closed and what is half made removed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = 128 + number


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; click itself would take a closed pipe for a failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ReaderGoneError from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None for a name that is not in the table."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        found = import_module(entry.module).command
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the table's own lines, importing none of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(version("eacgm"), prog_name="eacgm")
def program() -> None:
    """Watch distributed machine-learning jobs without touching them, and say which rank is at fault and why.

    \b
    Example:
      eacgm demo                 a real job, a planted fault, the alert
      eacgm COMMAND --help       what a command does, with an example
    """  # noqa: D301 - click reads the backspace as: keep these lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted.

    Failures are said in one line on standard error; the traceback of a defect is shown with ``EACGM_DEBUG=1``.
    """
    standard_streams.prepare()
    # events are many objects without cycles: looking for some after every 700 of them takes a tenth of the time
    gc.set_threshold(50_000, 20, 20)
    try:
        with _ended_by_signals():
            status = program.main(args=arguments, prog_name="eacgm", standalone_mode=False)
            sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        with contextlib.suppress(OSError):
            click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        return _say(_with_hint(error), error.exit_code)
    except EacgmError as error:
        return _say(str(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _say("interrupted", INTERRUPTED)
    except ToldToEndError as order:
        return _say("told to end", order.status)
    except (BrokenPipeError, ReaderGoneError):
        _leave_output()
        return BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - the outermost frame: a defect is still told in one line
        return _fail(error)
    return status if isinstance(status, int) else 0


def _fail(error: Exception) -> int:
    """Say what no command foresaw, and return the exit status."""
    if os.environ.get("EACGM_DEBUG"):
        traceback.print_exc()
    if isinstance(error, OSError) and error.errno is not None:
        _leave_output()
        remedy = _REMEDIES.get(error.errno, "look at what was asked for")
        what = f"{_name(error.filename)}: {error.strerror}" if error.filename else f"{error.strerror}"
        return _say(f"{what}; {remedy}", 1)
    if isinstance(error, MemoryError):
        return _say("the memory that we may use is used up; allow more (ulimit -v), or read less at once", 1)
    hint = "this is a defect; please report it with the traceback that EACGM_DEBUG=1 shows"
    return _say(f"{type(error).__name__}: {error} ({hint})", 1)


def _name(path: object) -> str:
    return os.fsdecode(path) if isinstance(path, bytes) else str(path)


def _leave_output() -> None:
    """Give up what standard output still holds: the interpreter's own flush at exit must not complain about it."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block by an exception; a SIGHUP that is ignored (nohup) stays so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise ToldToEndError(number)

    before = {sign: signal.getsignal(sign) for sign in (signal.SIGTERM, signal.SIGHUP)}
    for sign, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(sign, end)
    try:
        yield
    finally:
        for sign, handler in before.items():
            if handler is signal.SIG_DFL:
                signal.signal(sign, handler)


def _with_hint(error: click.ClickException) -> str:
    text = error.format_message()
    context = getattr(error, "ctx", None)
    return f"{text} (see {context.command_path} --help)" if context is not None else text


def _say(text: str, status: int) -> int:
    with contextlib.suppress(OSError):
        click.echo(f"eacgm: error: {printable(' '.join(text.split()))}", err=True)
    return status
