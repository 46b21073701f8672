import gzip
import os

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from eacgm.errors import InputError
from eacgm.producers import table_csv
from eacgm.producers.table import ImportStatistics, table_events
from eacgm.producers.table_rows import PHASES
from eacgm.streams import phase

HEADER = "time_s,rank,metric,value\n"


@pytest.fixture
def write(tmp_path):
    def write(text, name="job.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return write


def events_of(*paths, **options):
    return list(table_events(list(paths), **options))


def refusal(*paths):
    with pytest.raises(InputError) as caught:
        events_of(*paths)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_readings_of_a_rank_and_second_are_one_event(write):
    path = write(HEADER + "5.0,1,a,1.5\n5.9,1,b,2\n5.2,0,a,3\n6.0,1,a,4\n")
    first, second, third = events_of(path)
    assert (first.rank, first.name, first.value.tolist()) == (0, ["a"], [3.0])
    assert (second.rank, second.name, second.value.tolist()) == (1, ["a", "b"], [1.5, 2.0])
    assert (second.start_ns, second.end_ns, second.published_ns) == (5_000_000_000, 6_000_000_000, 6_000_000_000)
    assert (third.rank, third.start_ns) == (1, 6_000_000_000)
    assert [event.sequence for event in (first, second, third)] == [0, 1, 2]


def test_the_job_is_the_column_then_the_option_then_the_file_name(write):
    plain = write(HEADER + "0,0,a,1\n", "llama-7b.csv")
    assert events_of(plain)[0].job == "llama-7b"
    assert events_of(plain, job="mine")[0].job == "mine"
    named = write("time_s,rank,metric,value,job\n0,0,a,1,x\n0,0,a,2,\n")
    assert [(event.job, event.value.tolist()) for event in events_of(named, job="mine")] == [("mine", [2]), ("x", [1])]


def test_optional_columns_and_any_order_of_columns(write):
    path = write("node,value,phase,metric,group,rank,time_s,comment\nn1,2,eval,a,pp0,3,7,ignored\n")
    (event,) = events_of(path)
    assert (event.node, event.phase, event.group, event.rank, event.name) == ("n1", "eval", "pp0", 3, ["a"])


def test_the_last_told_phase_of_a_window_counts(write):
    path = write("time_s,rank,metric,value,phase\n0.1,0,a,1,train\n0.5,0,a,1,eval\n0.9,0,a,1,\n")
    assert [event.phase for event in events_of(path)] == ["eval"]


def test_gzip_quotes_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path, write):
    rows = 'time_s,rank,metric,value\r\n0,0,"a, b",1\r\n0,1,c,2\r\n'
    plain = write("\ufeff" + rows)
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(rows.encode()))
    for path in (plain, packed):
        assert [(event.rank, event.name) for event in events_of(path)] == [(0, ["a, b"]), (1, ["c"])]


def test_rows_may_be_up_to_a_second_older_than_the_newest(write):
    path = write(HEADER + "5.0,0,a,1\n5.9,0,a,2\n4.95,0,a,3\n")
    assert [(e.start_ns // 10**9, e.value.tolist()) for e in events_of(path)] == [(4, [3]), (5, [1, 2])]


def test_rows_older_than_that_are_refused_with_their_line(write):
    text = refusal(write(HEADER + "5.0,0,a,1\n5.9,0,a,2\n4.8,0,a,3\n"))
    assert "job.csv: line 4" in text
    assert "sorted by time" in text


def test_several_tables_are_merged_by_time(write):
    first = write(HEADER + "0,0,a,1\n2,0,a,1\n", "first.csv")
    second = write(HEADER + "1,1,a,1\n3,1,a,1\n", "second.csv")
    told = events_of(first, second, job="j")
    assert [event.start_ns // 10**9 for event in told] == [0, 1, 2, 3]
    assert [event.sequence for event in told] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("0,0,a,nan", "value is 'nan'; expected a finite number"),
        ("0,0,a,inf", "value is 'inf'; expected a finite number"),
        ("0,0,a,", "value is empty; expected a finite number"),
        ("0,0,a,1e308", "value is '1e308'; expected a finite number up to 1e+30"),
        ("0,0,a,fast", "value is 'fast'; expected a finite number"),
        ("0,0,a,1_000", "value is '1_000'; expected a finite number"),
        ("0,-1,a,1", "rank is '-1'; expected a whole number"),
        ("0,1.5,a,1", "rank is '1.5'; expected a whole number"),
        ("0,nan,a,1", "rank is 'nan'; expected a whole number"),
        ("0,x,a,1", "rank is 'x'; expected a whole number"),
        ("0,99999999,a,1", "rank is '99999999'; expected a whole number"),
        ("-1,0,a,1", "time_s is '-1'; expected seconds since 1970"),
        ("nan,0,a,1", "time_s is 'nan'; expected seconds since 1970"),
        ("1700000000000,0,a,1", "time_s is '1700000000000'; expected seconds since 1970"),
        ("2026-01-01T00:00:00Z,0,a,1", "expected seconds since 1970"),
        ("0,0,,1", "metric is empty; expected a name"),
        (f"0,0,{'m' * 201},1", "expected a name of 1 to 200 printable characters"),
        ("0,0,a", "has 3 cells; expected 4"),
        ("0,0,a,1,2", "has 5 cells; expected 4"),
        ("", "has 1 cells; expected 4"),
        ('0,0,"a', "expected"),
    ],
)
def test_a_bad_cell_is_refused_with_file_and_line(write, row, expected):
    text = refusal(write(HEADER + "0,0,good,1\n" + row + "\n0,1,good,1\n"))
    assert "job.csv: line 3: " in text
    assert expected in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        (HEADER, "has a header and no rows"),
        ("time_s,rank,value\n0,0,1\n", "lacks the column metric"),
        ("a;b;c\n1;2;3\n", "lacks the column time_s, rank, metric, value"),
        ("time_s,rank,metric,value,value\n0,0,a,1,1\n", "has the column value twice"),
    ],
)
def test_a_table_without_what_is_needed_is_refused(write, text, expected):
    assert expected in refusal(write(text))


def test_a_file_that_is_not_there_and_a_folder_are_refused(tmp_path):
    assert "cannot be read" in refusal(tmp_path / "nothing.csv")
    assert "cannot be read" in refusal(tmp_path)


def test_a_truncated_gzip_file_is_refused_with_the_line_reached(tmp_path):
    rows = HEADER + "".join(f"{t},0,a,{t * 0.123456789}\n" for t in range(20_000))
    path = tmp_path / "cut.csv.gz"
    path.write_bytes(gzip.compress(rows.encode())[:-2000])
    text = refusal(path)
    assert "cut.csv.gz: " in text
    assert "breaks off" in text


def test_damaged_gzip_data_are_refused(tmp_path):
    path = tmp_path / "damaged.csv.gz"
    data = bytearray(gzip.compress((HEADER + "0,0,a,1\n" * 5000).encode()))
    data[20:40] = bytes(20)
    path.write_bytes(data)
    assert "gzip data is damaged" in refusal(path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "binary.csv"
    path.write_bytes(HEADER.encode() + b"0,0,a,1\n\xff\xfe\x00\x01")
    assert "not UTF-8" in refusal(path)


def test_a_line_without_end_is_refused_without_reading_it_all(write, monkeypatch):
    monkeypatch.setattr(table_csv, "BLOCK_CHARACTERS", 4096)
    text = refusal(write(HEADER + "0,0,a,1\n" + "x" * 300_000))
    assert "far too long" in text


def test_places_are_right_in_later_blocks(write, monkeypatch):
    monkeypatch.setattr(table_csv, "BLOCK_CHARACTERS", 64)
    rows = "".join(f"{t},0,a,1\n" for t in range(500))
    assert "job.csv: line 502: value is 'x'" in refusal(write(HEADER + rows + "500,0,a,x\n501,0,a,1\n"))


def test_too_many_metrics_look_like_a_swapped_column(write):
    text = refusal(write(HEADER + "".join(f"0,0,{n}.5,1\n" for n in range(10_001))))
    assert "expected names in the column metric" in text


def test_parquet_gives_the_same_events_as_csv(tmp_path, write):
    text = "time_s,rank,metric,value,node\n0.5,0,a,1.25,n0\n0.75,1,b,2,n0\n1.5,0,a,3,n1\n"
    columns = {
        "time_s": [0.5, 0.75, 1.5],
        "rank": [0, 1, 0],
        "metric": ["a", "b", "a"],
        "value": [1.25, 2.0, 3.0],
        "node": ["n0", "n0", "n1"],
    }
    path = tmp_path / "job.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    assert events_of(path) == events_of(write(text))


@pytest.mark.parametrize(
    ("column", "cells", "expected"),
    [
        ("value", [1.0, None], "row 2: value is empty"),
        ("value", [True, False], "row 1: value is True"),
        ("rank", [0, None], "row 2: rank is empty"),
        ("metric", ["a", None], "row 2: metric is empty"),
        ("metric", [1, 2], "row 1: metric is 1"),
        ("value", [1.0, float("nan")], "row 2: value is nan"),
    ],
)
def test_bad_parquet_cells_are_refused_with_their_row(tmp_path, column, cells, expected):
    columns = {"time_s": [0.0, 1.0], "rank": [0, 0], "metric": ["a", "a"], "value": [1.0, 2.0], column: cells}
    path = tmp_path / "job.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    assert expected in refusal(path)


def test_damaged_parquet_is_refused(tmp_path):
    path = tmp_path / "job.parquet"
    path.write_bytes(b"PAR1" + bytes(100))
    assert "no readable Parquet" in refusal(path)


def test_a_large_table_is_read_with_bounded_open_windows(write, monkeypatch):
    monkeypatch.setattr(table_csv, "BLOCK_CHARACTERS", 1024)
    path = write(HEADER + "".join(f"{t},{r},a,{t}\n" for t in range(200) for r in range(4)))
    statistics = ImportStatistics()
    told = []
    for event in table_events([path], statistics=statistics):
        told.append(event)
        # an event is yielded long before the end of the table is read
        if len(told) == 4:
            assert statistics.readings < 400
    assert len(told) == 800
    assert np.concatenate([event.value for event in told]).sum() == sum(range(200)) * 4


def test_a_table_of_ever_new_metrics_is_refused_at_once(write):
    path = write(HEADER + "".join(f"0,0,m{number},1\n" for number in range(100_000)))
    # the work to find the first metric too many must not grow with the square of their number
    assert "line 10002: more than 10,000 metrics" in refusal(path)


@pytest.mark.parametrize("word", ["Train", "training", "lunch"])
def test_a_phase_that_is_none_of_ours_is_refused_with_its_line(write, word):
    header = "time_s,rank,metric,value,phase\n"
    text = refusal(write(f"{header}0,0,a,1,train\n0,1,a,1,\n0,2,a,1,{word}\n"))
    assert f"job.csv: line 4: phase is '{word}'; expected warmup, train, eval, checkpoint, idle or none" in text
    assert {event.phase for event in events_of(write(f"{header}0,0,a,1,train\n0,1,a,1,\n"))} == {"train", ""}


def test_the_phases_of_a_table_are_those_that_the_pipeline_knows():
    assert set(PHASES) == {phase.WARMUP, phase.TRAIN, phase.EVAL, phase.CHECKPOINT, phase.IDLE}


@pytest.mark.parametrize("column", ["job", "node", "group", "phase"])
def test_texts_that_cannot_be_printed_are_refused(write, column):
    path = write(f"time_s,rank,metric,value,{column}\n0,0,a,1,x\x1b[31m\n")
    assert f"line 2: {column} is 'x\\x1b[31m'" in refusal(path)


def test_a_file_name_that_is_no_text_gives_a_job_name_that_is(write, tmp_path):
    path = tmp_path / os.fsdecode(b"run\xff\x1b.csv")
    path.write_text(HEADER + "0,0,a,1\n")
    assert events_of(path)[0].job == "run__"


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "is no ordinary file" in refusal(tmp_path / "pipe")
