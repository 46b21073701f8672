import numpy as np
import pytest

from eacgm.errors import InputError
from eacgm.events import HostEvent
from eacgm.streams.snapshot import MAGIC, pack, unpack


def test_everything_comes_back_as_it_was():
    state = {
        "a": np.array([[1.5, np.nan]]),
        "b": np.array([True, False]),
        3: [None, "x", 2**62, -1.0, b"\0", float("inf")],
        "e": HostEvent(job="j", start_ns=1, end_ns=2, cpu_seconds=0.1),
        "none": np.empty((0, 4)),
    }
    back = unpack(pack(state))
    assert np.array_equal(back["a"], state["a"], equal_nan=True)
    assert back["b"].dtype == np.bool_
    assert back[3] == state[3]
    assert back["e"] == state["e"]
    assert back["none"].shape == (0, 4)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "no snapshot"),
        (b"\x80\x04pickle", "no snapshot"),
        (MAGIC + b"\x63" + b"zz", "version 99"),
        (pack({"a": 1})[:-3], "damaged"),
        (pack({"a": 1})[:8] + b"\0\0\0\0", "damaged"),
        (MAGIC + b"\x02" + (2**60).to_bytes(8, "little") + pack({"a": 1})[15:], "damaged"),
        (MAGIC + b"\x02" + (1000).to_bytes(8, "little") + pack({"a": 1})[15:], "damaged"),
    ],
)
def test_foreign_bytes_are_refused_in_one_line(payload, message):
    with pytest.raises(InputError, match=message) as caught:
        unpack(payload)
    assert "\n" not in str(caught.value)


def test_objects_are_never_packed():
    with pytest.raises(TypeError):
        pack({"a": object()})
    with pytest.raises(TypeError):
        pack({"a": np.array([object()])})
