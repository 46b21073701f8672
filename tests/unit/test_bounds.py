"""Messages that say what cannot be: refused in one line, or taken as not told; never a wrong number further on."""

import math

import numpy as np
import pytest

from eacgm.errors import DecodeError
from eacgm.events import CallsEvent, CollectivesEvent, GpuEvent, HostEvent, SamplesEvent
from eacgm.schemas import decode, encode
from eacgm.schemas.bounds import MAX_TIME_NS, MAX_WHOLE
from eacgm.schemas.recording import RecordingReader, RecordingWarning, RecordingWriter
from eacgm.schemas.store import schema_of

LARGEST, SMALLEST = 2**63 - 1, -(2**63)


def host(**fields):
    return HostEvent(**{"job": "j", "rank": 0, "start_ns": 0, "end_ns": 1_000_000_000, **fields})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e31, -1e308])
def test_a_reading_that_is_no_number_was_not_told(value):
    assert decode(encode(host(cpu_seconds=value, rss_bytes=3.0))) == host(cpu_seconds=None, rss_bytes=3.0)
    gpu = GpuEvent(job="j", start_ns=0, end_ns=1, power_watts=value, temperature_celsius=40.0)
    assert decode(encode(gpu)).power_watts is None
    assert decode(encode(gpu)).temperature_celsius == 40.0
    sample = SamplesEvent(job="j", rank=0, start_ns=0, end_ns=1, name=["a", "b"], value=np.array([value, 2.0]))
    assert decode(encode(sample)).value == pytest.approx([math.nan, 2.0], nan_ok=True)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"start_ns": -1}, "start_ns is -1"),
        ({"end_ns": LARGEST}, "end_ns is"),
        ({"published_ns": MAX_TIME_NS + 1}, "published_ns is"),
        ({"lost": LARGEST}, "lost is"),
        ({"clock_error_ns": SMALLEST}, "clock_error_ns is"),
        ({"sequence": LARGEST}, "sequence is"),
    ],
)
def test_a_head_that_cannot_be_is_refused_by_name(fields, named):
    with pytest.raises(DecodeError, match=named):
        decode(encode(host(**fields)))


@pytest.mark.parametrize("value", [LARGEST, SMALLEST, MAX_WHOLE + 1])
@pytest.mark.parametrize("kind", [CallsEvent, CollectivesEvent])
def test_every_column_of_whole_numbers_is_bounded(kind, value):
    columns = [f["name"] for f in schema_of(kind.topic).parsed["fields"] if _is_whole_column(f["type"])]
    assert len(columns) >= 7
    for name in columns:
        if name.endswith(("start_ns", "end_ns")) and 0 <= value <= MAX_TIME_NS:
            continue  # a time may be larger than a count
        event = kind(job="j", rank=0, start_ns=0, end_ns=1, **{name: np.array([value])})
        with pytest.raises(DecodeError, match=f"{name} holds {value}"):
            decode(encode(event))


def _is_whole_column(avro):
    return isinstance(avro, dict) and avro["type"] == "array" and avro["items"] == "long"


def test_what_the_bounds_allow_comes_back_as_it_was():
    event = host(end_ns=MAX_TIME_NS, published_ns=MAX_TIME_NS, lost=MAX_WHOLE, cpu_seconds=1e30)
    assert decode(encode(event)) == event


def test_what_cannot_be_in_a_recording_is_left_out_with_its_place(tmp_path):
    with RecordingWriter(tmp_path / "r") as writer:
        writer.write(host())
        writer.write(host(end_ns=LARGEST))
    said = "1 record is no event and is left out, the first: record 2: end_ns is 9223372036854775807; expected"
    with pytest.warns(RecordingWarning, match=said) as caught:
        assert list(RecordingReader(tmp_path / "r")) == [host()]
    assert "\n" not in str(caught[0].message)
