import errno
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from importlib import import_module

import click
import pytest

from eacgm.cli import main as program
from eacgm.errors import EacgmError, InputError, UsageError


def commands():
    """Every command and sub-command, by its words."""
    found = {}
    for name, entry in program.COMMANDS.items():
        command = import_module(entry.module).command
        found[(name,)] = command
        if isinstance(command, click.Group):
            found |= {(name, child): command.commands[child] for child in command.commands}
    return found


@pytest.fixture
def failing(monkeypatch):
    """Registers a command that raises."""

    def register(error):
        @click.command("failing")
        def command():
            raise error

        module = type(sys)("failing_command")
        module.command = command
        monkeypatch.setitem(sys.modules, "failing_command", module)
        monkeypatch.setitem(program.COMMANDS, "failing", program.Entry("failing_command", ""))

    return register


def test_every_command_has_help_with_an_example():
    found = commands()
    assert len(found) >= len(program.COMMANDS)
    for words, command in found.items():
        with click.Context(command, info_name=" ".join(("eacgm", *words))) as context:
            text = command.get_help(context)
        assert "Example:" in text, words
        assert f"eacgm {' '.join(words)}" in text.split("Example:")[1], words


def test_every_option_has_help():
    for words, command in commands().items():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (words, parameter.name)


def test_the_list_of_commands_loads_no_heavy_library():
    code = (
        "import sys; from eacgm.cli.main import main; main(['--help']); "
        "sys.exit(1 if {'numpy', 'sklearn', 'fastavro', 'rich', 'river'} & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in program.COMMANDS)


def test_version_is_the_packages(capsys):
    assert program.main(["--version"]) == 0
    from importlib.metadata import version

    assert version("eacgm") in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["--nonsense"], ["replay"], ["simulate", "--ranks", "x", "--out", "y"]]
)
def test_wrong_usage_is_one_line_and_status_2(arguments, capsys):
    assert program.main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("eacgm: error: ")
    assert told.err.count("\n") == 1
    assert "--help" in told.err


def test_no_command_shows_the_help_and_is_wrong_usage(capsys):
    assert program.main([]) == 2
    assert "Commands:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status"),
    [(EacgmError("it broke"), 1), (InputError("it broke", path="f"), 1), (UsageError("it broke"), 2)],
)
def test_our_errors_are_one_line_with_their_status(failing, capsys, error, status):
    failing(error)
    assert program.main(["failing"]) == status
    assert capsys.readouterr().err == f"eacgm: error: {error}\n"


def test_a_defect_is_one_line_that_says_how_to_see_more(failing, capsys, monkeypatch):
    failing(ZeroDivisionError("a\nb"))
    monkeypatch.delenv("EACGM_DEBUG", raising=False)
    assert program.main(["failing"]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "ZeroDivisionError: a b" in told
    assert "EACGM_DEBUG=1" in told


def test_the_traceback_of_a_defect_is_shown_on_request(failing, capsys, monkeypatch):
    failing(ZeroDivisionError("no"))
    monkeypatch.setenv("EACGM_DEBUG", "1")
    assert program.main(["failing"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_ends_with_130(failing, capsys):
    failing(KeyboardInterrupt())
    assert program.main(["failing"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error():
    code = (
        "import sys, click\n"
        "from eacgm.cli import main as program\n"
        "@click.command('flood')\n"
        "def command():\n"
        "    for number in range(200_000): click.echo(number)\n"
        "sys.modules['flood'] = type(sys)('flood'); sys.modules['flood'].command = command\n"
        "program.COMMANDS['flood'] = program.Entry('flood', '')\n"
        "sys.exit(program.main(['flood']))\n"
    )
    flood = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    flood.stdout.readline()
    flood.stdout.close()
    assert flood.stderr.read() == b""
    flood.stderr.close()
    assert flood.wait(timeout=60) == program.BROKEN_PIPE


def run(code, **how):
    """Run Python code in a process of its own; returns it, finished."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, **how)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device; make room"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "/x: Permission denied; choose"),
        (OSError(errno.EMFILE, "Too many open files", b"/y"), "/y: Too many open files; allow more open files"),
        (MemoryError(), "the memory that we may use is used up"),
    ],
)
def test_what_the_system_refuses_is_no_defect(failing, capsys, error, expected):
    failing(error)
    assert program.main(["failing"]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"eacgm: error: {expected}")
    assert "defect" not in told
    assert told.count("\n") == 1


def test_errors_cannot_write_on_the_terminal_what_they_like(failing, capsys):
    failing(InputError("found \x1b[31mred\x07\u202e"))
    assert program.main(["failing"]) == 1
    assert capsys.readouterr().err == "eacgm: error: found \\x1b[31mred\\x07\\u202e\n"


@pytest.mark.parametrize("closed", ["0", "1", "2", "0 1 2"])
def test_closed_standard_streams_are_borne(closed, tmp_path):
    code = (
        "import os, sys\n"
        f"{'; '.join(f'os.close({number})' for number in closed.split())}\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'eacgm', 'import', 'table', sys.argv[1], '--out', 'out'])\n"
    )
    table = tmp_path / "t.csv"
    table.write_text("time_s,rank,metric,value\n1,0,a,1\n")
    done = subprocess.run([sys.executable, "-c", code, str(table)], capture_output=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").is_dir()


def test_output_that_cannot_be_written_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "eacgm", "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr.startswith("eacgm: error: No space left on device")
    assert done.stderr.count("\n") == 1


def test_errors_that_cannot_be_written_keep_their_status():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "eacgm", "nonsense"], stderr=full, check=False)
    assert done.returncode == 2


def test_letters_that_the_terminal_lacks_are_escaped():
    done = run(
        "from eacgm.cli import standard_streams; standard_streams.prepare(); print('gr\\xf6\\xdfer \\udcff')",
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.stdout == "gr\\xf6\\xdfer \\udcff\n", done.stderr


def test_a_command_that_is_told_to_end_cleans_up(failing, capsys, tmp_path):
    @contextmanager
    def half_made():
        (tmp_path / "half").touch()
        try:
            yield
        finally:
            (tmp_path / "half").unlink()

    @click.command("ending")
    def ending():
        with half_made():
            signal.raise_signal(signal.SIGTERM)

    failing(RuntimeError("never raised"))
    sys.modules["failing_command"].command = ending
    assert program.main(["failing"]) == 128 + signal.SIGTERM
    assert capsys.readouterr().err == "eacgm: error: told to end\n"
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
