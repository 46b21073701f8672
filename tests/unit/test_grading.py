"""Incidents held against labels: by hand, and against a count of every pair."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eacgm.cli.grades import read_labels
from eacgm.cli.main import main
from eacgm.errors import InputError
from eacgm.streams.comparison import Incident
from eacgm.streams.grading import Label, grade

SECOND = 10**9


def incident(name, detected, ranks=(), cause="pcie", job="j"):
    return Incident(name, job, cause, "warning", tuple(ranks), (detected - 2) * SECOND, detected * SECOND)


def label(start, end=None, **known):
    return Label(start * SECOND, None if end is None else end * SECOND, **known)


def test_each_way_to_be_right_and_wrong():
    labels = [label(10, 20, ranks=(1,)), label(50, 60, cause="hang"), label(100, job="other"), label(200)]
    found = grade(
        labels,
        [
            incident("early", 9, [1]),
            incident("first", 13, [1, 2]),
            incident("again", 24, [1]),
            incident("late", 26, [1]),
            incident("else", 55),
            incident("anybody", 300),
        ],
        grace_ns=5 * SECOND,
    )
    assert [one.incident and one.incident.incident for one in found.graded] == ["first", None, None, "anybody"]
    assert [one.delay_seconds for one in found.graded] == [3.0, None, None, 100.0]
    assert [one.incident for one in found.unexplained] == ["early", "late", "else"]
    assert (found.precision, found.recall, found.delay_seconds) == (0.5, 0.5, 51.5)


def test_nothing_to_divide_by_is_no_number():
    assert (grade([], [], grace_ns=0).precision, grade([], [], grace_ns=0).recall) == (None, None)
    assert grade([label(1)], [], grace_ns=0).recall == 0.0
    assert grade([], [incident("x", 1)], grace_ns=0).precision == 0.0


ranks = st.lists(st.integers(0, 3), max_size=2, unique=True).map(tuple)


@given(
    st.lists(st.builds(label, st.integers(0, 9), st.none() | st.integers(9, 12), ranks=ranks), max_size=5),
    st.lists(st.builds(incident, st.uuids().map(str), st.integers(0, 20), ranks), max_size=5),
    st.randoms(use_true_random=False),
)
def test_order_does_not_matter_and_more_grace_is_never_worse(labels, incidents, chance):
    strict = grade(labels, incidents, grace_ns=0)
    chance.shuffle(labels)
    chance.shuffle(incidents)
    again, kind = grade(labels, incidents, grace_ns=0), grade(labels, incidents, grace_ns=3 * SECOND)
    assert (strict.precision, strict.recall, strict.delay_seconds) == (
        again.precision,
        again.recall,
        again.delay_seconds,
    )
    assert len(kind.unexplained) <= len(strict.unexplained)
    assert (kind.recall or 0) >= (strict.recall or 0)
    assert len(strict.unexplained) <= strict.n_incidents == len(incidents)


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "{}", '{"started_at":1}', '{"started_at":"yesterday"}', '{"started_at":"2026-01-01T00:00:00"}',
     '{"started_at":"2026-01-01T00:00:00Z","ended_at":"2025-01-01T00:00:00Z"}',
     '{"started_at":"2026-01-01T00:00:00Z","ranks":["2"]}', '{"started_at":"2026-01-01T00:00:00Z","reason":"x"}',
     '{"started_at":"2026-01-01T00:00:00Z","cause":7}', "[" * 100_000],
)  # fmt: skip
def test_what_is_no_label_is_told_with_its_line(line, tmp_path):
    file = tmp_path / "labels"
    file.write_text('{"started_at":"2026-01-01T00:00:00Z"}\n\n' + line + "\n")
    with pytest.raises(InputError, match="line 3") as told:
        read_labels(file)
    assert "\n" not in str(told.value)


def test_a_planted_fault_is_found_and_graded(tmp_path, capsys):
    recording, labels = tmp_path / "recording", tmp_path / "labels"
    words = ["--ranks", "8", "--seconds", "150", "--fault", "slow_compute@3:90-120", "--out", str(recording)]
    assert main(["simulate", *words]) == 0
    labels.write_text(
        '{"started_at":"2026-01-01T00:01:30Z","ended_at":"2026-01-01T00:02:00Z","cause":"slow_compute","ranks":[3]}\n'
        '{"started_at":"2026-01-01T00:00:10Z","ended_at":"2026-01-01T00:00:20Z"}\n'
    )
    capsys.readouterr()
    assert main(["replay", str(recording), "--labels", str(labels), "--json"]) == 0
    graded = [record for record in map(json.loads, capsys.readouterr().out.splitlines()) if "grade" in record]
    assert [record["grade"] for record in graded] == ["missed", "found", "summary"]
    assert graded[1]["ranks"] == [3]
    assert 0 < graded[1]["delay_seconds"] < 15
    assert (graded[2]["precision"], graded[2]["recall"]) == (1.0, 0.5)
    assert main(["replay", str(recording), "--labels", str(recording / "labels.json")]) == 0
    assert "precision 1, recall 1, median delay seconds" in capsys.readouterr().err
