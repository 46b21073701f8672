import os
import subprocess

import pytest

from eacgm.errors import ProbeError
from eacgm.producers.libraries import Library
from eacgm.producers.probe import Probe
from eacgm.producers.sites import find_sites, is_marker

_SOURCE = """
.text
.globl plain
.type plain,@function
plain: push %rbp
  pop %rbp
  ret
.size plain,.-plain
.globl lean
.type lean,@function
lean: xor %eax,%eax
  ret
.size lean,.-lean
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sites")
    (folder / "own.s").write_text(_SOURCE)
    path = folder / "libown.so.1"
    subprocess.run(["gcc", "-shared", "-o", path, folder / "own.s"], check=True)
    status = os.stat(path)
    return Library("libown.so.1", str(path), (status.st_dev, status.st_ino))


def probe(symbol, library=r"libown\.so.*", **more):
    return Probe("collective", library, symbol, "own", **more)


def test_sites_stand_under_the_probe_s_place_in_the_table(library):
    table = [probe("absent"), probe("plain"), probe("plain", library=r"libother\.so.*"), probe("plain|lean", rare=True)]
    sites = find_sites(table, library)
    assert sorted(sites) == [1, 3]
    assert len(sites[1].offsets) == 1
    assert sites[1].return_offsets == sites[1].offsets
    assert sites[1].semaphores == [0]
    assert len(sites[3].offsets) == 2


def test_a_place_that_must_be_single_stepped_is_refused_unless_it_is_rare(library):
    strict, rare = find_sites([probe("lean")], library)[0], find_sites([probe("lean", rare=True)], library)[0]
    assert strict.offsets == []
    assert "lean: its first instruction" in strict.refused[0]
    assert len(rare.offsets) == 1
    assert rare.refused == []


def test_markers_that_the_library_lacks_are_no_site(library):
    marker = probe("usdt:own:begin:end")
    assert is_marker(marker)
    assert not is_marker(probe("plain"))
    assert find_sites([marker], library) == {}


def test_a_file_that_is_no_library_says_so(tmp_path):
    path = tmp_path / "libown.so.1"
    path.write_bytes(b"no ELF at all")
    with pytest.raises(ProbeError, match=r"libown\.so\.1"):
        find_sites([probe("plain")], Library("libown.so.1", str(path), (0, 0)))
