import re
from importlib.resources import files

import pytest

from eacgm.producers.probe import ERRORS, FAMILIES, LAYERS, PROGRAMS, Probe
from eacgm.producers.probes import DEFAULT_PROBES


def shift(name):
    """Where bpf/calls.c takes a field of the cookie from."""
    text = files("eacgm.bpf").joinpath("calls.c").read_text()
    found = re.search(rf"#define COOKIE_{name}\(cookie\) \(\(\(cookie\) >> (\d+)\) & 0x([0-9a-f]+)\)", text)
    assert found is not None
    return int(found[1]), int(found[2], 16)


@pytest.mark.parametrize(
    ("field", "name"),
    [("bytes_argument", "BYTES"), ("datatype_argument", "DATATYPE"), ("communicator_argument", "COMMUNICATOR")],
)
@pytest.mark.parametrize("index", [1, 6, 7])
def test_an_argument_s_place_is_where_the_program_looks(field, name, index):
    bits, mask = shift(name)
    probe = Probe("cuda", "lib", "symbol", "function", **{field: index})
    assert probe.cookie(0xFFFF) >> bits & mask == index
    assert probe.cookie(0xFFFF) & 0xFFFF == 0xFFFF


@pytest.mark.parametrize("kind", [kind for kind in ERRORS if kind])
def test_the_rule_for_errors_is_the_program_s(kind):
    text = files("eacgm.bpf").joinpath("calls.c").read_text()
    found = re.search(rf"#define ERRORS_{kind.upper()} (\d)", text)
    assert found is not None
    bits, mask = shift("ERRORS")
    assert Probe("cuda", "lib", "s", "f", errors=kind).cookie(1) >> bits & mask == int(found[1]) == ERRORS[kind]


@pytest.mark.parametrize(
    ("flag", "probe"),
    [
        ("STEP", Probe("pytorch", "lib", "s", "f", "step")),
        ("RECORD", Probe("collective", "lib", "s", "f", "collective")),
        ("RECORD", Probe("collective", "lib", "s", "f", "execute")),
        ("MARKER", Probe("python", "lib", "usdt:p:a:b", "f")),
    ],
)
def test_flags_are_the_program_s(flag, probe):
    text = files("eacgm.bpf").joinpath("calls.c").read_text()
    found = re.search(rf"#define COOKIE_{flag} \(1ULL << (\d+)\)", text)
    assert found is not None
    assert probe.cookie(0) == 1 << int(found[1])


@pytest.mark.parametrize("family", [family for family in FAMILIES if family])
def test_a_family_s_place_is_where_the_program_looks(family):
    bits, mask = shift("FAMILY")
    cookie = Probe("cuda", "lib", "s", "f", family=family).cookie(0)
    assert cookie >> bits & mask == FAMILIES[family]
    assert cookie == FAMILIES[family] << bits


def test_every_row_of_the_table_can_be_attached():
    for probe in DEFAULT_PROBES:
        assert probe.layer in LAYERS
        assert probe.kind in PROGRAMS
        assert probe.errors in ERRORS
        assert probe.family in FAMILIES
        re.compile(probe.library)
        if "::" not in probe.symbol:
            re.compile(probe.symbol)
        for index in (probe.bytes_argument, probe.datatype_argument):
            assert 0 <= index <= 6
        assert 0 <= probe.communicator_argument <= 7


def test_no_row_is_there_twice():
    keys = [(probe.library, probe.symbol) for probe in DEFAULT_PROBES]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("libtorch_cpu.so", {"pytorch", "collective"}),
        ("libtorch_cpu.so.1.13.0", {"pytorch", "collective"}),
        ("libnccl.so.2", {"collective"}),
        ("libcudart.so.12", {"cuda"}),
        ("libcudart-d0da41ae.so.11.0", {"cuda"}),  # as auditwheel renames it
        ("libcuda.so.550.54.14", {"cuda"}),
        ("python3.11", {"python"}),
        ("libpython3.11.so.1.0", {"python"}),
        ("libm.so.6", set()),
    ],
)
def test_libraries_are_known_by_their_file_names(name, layers):
    assert {probe.layer for probe in DEFAULT_PROBES if re.fullmatch(probe.library, name)} == layers
