import json

import pytest

from eacgm.bench.cases import find_cases, read_expectation, run_case, run_cases
from eacgm.bench.verdict import Expectation, ExpectedAlert
from eacgm.config import Config
from eacgm.errors import InputError

ALERT = {"cause": ["hang", "crash"], "ranks": [1], "onset_s": 20, "max_delay_s": 30}


def expectation(**changes):
    return {"alerts": [ALERT], "max_incidents": 1, "forbidden_causes": ["network"], **changes}


ROWS = "time_s,rank,metric,value\n" + "".join(
    f"{second},{rank},step_seconds,{0.2 + 0.001 * ((second * 7 + rank * 3) % 5)}\n"
    for second in range(30)
    for rank in range(4)
)


@pytest.fixture
def make_case(tmp_path):
    def make(name, expected, text):
        case = tmp_path / name
        case.mkdir()
        (case / "expected.json").write_text(expected if isinstance(expected, str) else json.dumps(expected))
        if text is not None:
            (case / "telemetry.csv").write_text(text)
        return case

    return make


def test_an_expectation_is_read_as_it_stands(make_case):
    case = make_case("c", expectation(), ROWS)
    assert read_expectation(case / "expected.json") == Expectation(
        alerts=(ExpectedAlert(("hang", "crash"), (1,), 20.0, 30.0),), max_incidents=1, forbidden_causes=("network",)
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        json.dumps({"alerts": []}),
        json.dumps(expectation(max_incidents="1")),
        json.dumps(expectation(max_incidents=True)),
        json.dumps(expectation(alerts=[{"cause": ["hang"]}])),
        json.dumps(expectation(alerts=[{**ALERT, "ranks": ["one"]}])),
        json.dumps(expectation(alerts=[{**ALERT, "onset_s": "soon"}])),
        "[" * 100_000,
    ],
)
def test_expectations_that_say_less_are_refused_with_their_file(make_case, text):
    case = make_case("c", text, ROWS)
    with pytest.raises(InputError, match=r"expected\.json") as caught:
        read_expectation(case / "expected.json")
    assert "\n" not in str(caught.value)


def test_cases_are_found_by_name_and_a_case_alone_is_one(make_case, tmp_path):
    second, first = make_case("b", expectation(), ROWS), make_case("a", expectation(), ROWS)
    (tmp_path / "notes").mkdir()
    assert find_cases(tmp_path) == [first, second]
    assert find_cases(first) == [first]


def test_a_folder_without_cases_or_a_case_without_telemetry_is_refused(make_case, tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        find_cases(tmp_path / "nothing")
    with pytest.raises(InputError, match="holds no case"):
        find_cases(tmp_path)
    make_case("bare", expectation(), None)
    with pytest.raises(InputError, match="bare: has no telemetry"):
        find_cases(tmp_path)


def test_a_calm_job_passes_as_a_control_and_misses_what_did_not_happen(make_case):
    calm = run_case(make_case("calm", expectation(alerts=[], max_incidents=0), ROWS), Config())
    assert (calm.passed, calm.seconds, calm.incidents) == (True, 30.0, ())
    missed = run_case(make_case("missed", expectation(), ROWS), Config())
    assert (missed.passed, missed.delays_s) == (False, (None,))


def test_verdicts_come_in_the_order_of_the_cases_from_several_processes(make_case, tmp_path):
    control = expectation(alerts=[], max_incidents=0)
    cases = [make_case(name, control, ROWS) for name in ("c", "a", "b")]
    seen = []
    verdicts = run_cases(find_cases(tmp_path), Config(), 2, seen.append)
    assert [verdict.case for verdict in verdicts] == ["a", "b", "c"]
    assert seen == verdicts
    assert verdicts == [run_case(case, Config()) for case in sorted(cases)]


def test_a_case_whose_table_is_bad_stops_the_run_with_its_place(make_case, tmp_path):
    make_case("bad", expectation(), "time_s,rank,metric,value\n0,0,a,x\n")
    with pytest.raises(InputError, match=r"telemetry\.csv: line 2"):
        run_cases(find_cases(tmp_path), Config(), 1)


@pytest.mark.parametrize("onset", [float("inf"), float("nan")])
def test_an_onset_that_never_comes_is_refused(make_case, onset):
    case = make_case("never", expectation(), ROWS)
    path = case / "expected.json"
    told = json.loads(path.read_text())
    told["alerts"][0]["onset_s"] = onset
    path.write_text(json.dumps(told))
    with pytest.raises(InputError, match="is no number of seconds"):
        read_expectation(path)
