import json

import numpy as np
import pytest

from eacgm.cli.output import Progress, note, print_json, print_line, print_table


def test_a_table_elsewhere_than_on_a_terminal_has_no_colours_and_no_folds(capsys):
    print_table([{"name": "x" * 300, "rate": 1234567.0}, {"name": "[b]", "rate": None, "more": True}])
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert "x" * 300 in told
    assert "1,234,567" in told
    assert "[b]" in told
    assert "yes" in told


def test_a_record_is_one_line_of_json_in_the_order_given(capsys):
    print_json({"b": 1, "a": "ü\n"})
    told = capsys.readouterr().out
    assert told.count("\n") == 1
    assert list(json.loads(told)) == ["b", "a"]


def test_numbers_of_numpy_are_records_too(capsys):
    print_json({"count": np.int64(3), "ratio": np.float64(0.5)})
    assert json.loads(capsys.readouterr().out) == {"count": 3, "ratio": 0.5}


def test_a_number_that_json_lacks_is_refused():
    with pytest.raises(ValueError, match="JSON"):
        print_json({"a": float("nan")})


def test_a_line_is_plain_elsewhere_than_on_a_terminal(capsys):
    print_line("alert", "bold red")
    assert capsys.readouterr().out == "alert\n"


def test_progress_is_silent_when_the_work_is_short(capsys):
    with Progress("working") as progress:
        progress.update(rows=1)
        progress.pause()
    told = capsys.readouterr()
    assert told.out == told.err == ""


def test_progress_says_a_line_when_the_work_is_long(capsys, monkeypatch):
    now = iter([0.0, 11.0])
    monkeypatch.setattr("eacgm.cli.output.time.monotonic", lambda: next(now))
    with Progress("working") as progress:
        progress.update(rows=1_000, open_files=2)
    assert capsys.readouterr().err == "working 11 s: rows 1,000, open files 2\n"


def test_progress_refreshes_one_line_on_a_terminal(capsys, monkeypatch):
    now = iter([0.0, 1.0, 2.0])
    monkeypatch.setattr("eacgm.cli.output.time.monotonic", lambda: next(now))
    monkeypatch.setattr("eacgm.cli.output.sys.stderr.isatty", lambda: True)
    with Progress("working") as progress:
        progress.update(rows=1_000)
        progress.update(rows=2)
    told = capsys.readouterr().err
    assert "\n" not in told
    assert told.count("\r") == 4
    assert told.endswith(" \r")


def test_what_events_say_cannot_write_on_the_terminal_what_it_likes(capsys):
    evil = "node \x1b[2J\nALERT open"
    print_line(evil, "bold")
    note(evil)
    print_table([{"node": evil}])
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err
    assert not any(line.startswith("ALERT") for line in (told.out + told.err).splitlines())
