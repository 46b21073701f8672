"""The program `eacgm`: finds the command, runs it, and turns every ending into an exit status and one line.

A command is one module of this folder with a click command named ``command``; it is imported only when it is
called, so that ``eacgm --help`` loads neither numpy nor scikit-learn.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any, NamedTuple

import click

from eacgm.errors import EacgmError

#: exit statuses as a shell reports death by SIGINT and by SIGPIPE
INTERRUPTED = 130
BROKEN_PIPE = 141


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
    "worker": Entry("eacgm.cli.worker", "The pipeline on Kafka; more workers of a group share the jobs."),
    "topics": Entry("eacgm.cli.topics", "Create or check the topics on a Kafka cluster."),
    "bench": Entry("eacgm.cli.bench", "The project's benchmarks, and judging a folder of cases."),
}


class ReaderGoneError(Exception):
    """Whoever read our standard output has closed it; not an error of ours or of theirs."""


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
    try:
        status = program.main(args=arguments, prog_name="eacgm", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        return _say(_with_hint(error), error.exit_code)
    except EacgmError as error:
        return _say(str(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _say("interrupted", INTERRUPTED)
    except (BrokenPipeError, ReaderGoneError):
        # the reader has gone; the interpreter's own flush at exit must not complain about it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - the outermost frame: a defect is still told in one line
        if os.environ.get("EACGM_DEBUG"):
            traceback.print_exc()
        hint = "this is a defect; please report it with the traceback that EACGM_DEBUG=1 shows"
        return _say(f"{type(error).__name__}: {error} ({hint})", 1)
    return status if isinstance(status, int) else 0


def _with_hint(error: click.ClickException) -> str:
    text = error.format_message()
    context = getattr(error, "ctx", None)
    return f"{text} (see {context.command_path} --help)" if context is not None else text


def _say(text: str, status: int) -> int:
    with contextlib.suppress(BrokenPipeError):
        click.echo(f"eacgm: error: {' '.join(text.split())}", err=True)
    return status
