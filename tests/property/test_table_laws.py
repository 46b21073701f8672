import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from eacgm.producers import table_csv
from eacgm.producers.table import table_events

READINGS = st.tuples(
    st.integers(0, 6000),
    st.integers(0, 5),
    st.sampled_from(["step_seconds", "gpu_power_watts", "a, quoted"]),
    st.floats(-1e30, 1e30),
)


@settings(max_examples=60, deadline=None)
@given(readings=st.lists(READINGS, min_size=1, max_size=120), block=st.sampled_from([16, 200, 100_000]))
def test_the_import_keeps_every_reading_exactly_once_in_its_window(readings, block):
    readings.sort(key=lambda reading: reading[0])
    rows = "".join(f'{ms / 1000},{rank},"{metric}",{value!r}\n' for ms, rank, metric, value in readings)
    whole_blocks = table_csv.BLOCK_CHARACTERS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.csv"
        path.write_text("time_s,rank,metric,value\n" + rows)
        table_csv.BLOCK_CHARACTERS = block
        try:
            events = list(table_events([path]))
        finally:
            table_csv.BLOCK_CHARACTERS = whole_blocks
    imported = Counter(
        (event.start_ns // 10**9, event.rank, name, value)
        for event in events
        for name, value in zip(event.name, event.value.tolist(), strict=True)
    )
    assert imported == Counter((ms // 1000, rank, metric, value) for ms, rank, metric, value in readings)
    # one event per rank and window, in order of time
    assert len({(event.start_ns, event.rank) for event in events}) == len(events)
    assert [event.start_ns for event in events] == sorted(event.start_ns for event in events)


@settings(max_examples=30, deadline=None)
@given(readings=st.lists(READINGS, min_size=1, max_size=60), seed=st.randoms(use_true_random=False))
def test_the_order_of_rows_inside_a_second_does_not_matter_for_what_is_told(readings, seed):
    # distinct instants: equal ones keep the table's order
    distinct = {reading[0]: reading for reading in readings}
    ordered = sorted(distinct.values())
    shuffled = sorted(ordered, key=lambda reading: (reading[0] // 1000, seed.random()))
    told = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.csv"
        for rows in (ordered, shuffled):
            lines = [f'{ms / 1000},{rank},"{metric}",{value!r}\n' for ms, rank, metric, value in rows]
            path.write_text("time_s,rank,metric,value\n" + "".join(lines))
            told.append(list(table_events([path])))
    assert told[0] == told[1]
