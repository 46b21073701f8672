import mmap
import os
import re
import shutil
import subprocess
import sys

import pytest

from eacgm.errors import ProbeError
from eacgm.producers.libraries import mapped_libraries


def test_libraries_are_found_by_their_name_and_reach_the_mapped_inode():
    (libc,) = mapped_libraries(os.getpid(), [re.compile(r"libc\.so.*|libc-.*\.so")])
    status = os.stat(libc.path)
    assert libc.inode == (status.st_dev, status.st_ino)
    assert re.fullmatch(r"libc.*\.so.*", libc.name)


def test_a_name_must_match_wholly():
    assert mapped_libraries(os.getpid(), [re.compile("libc")]) == []


def test_a_process_that_is_gone_is_said_in_one_line():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(ProbeError, match=f"process {child.pid}"):
        mapped_libraries(child.pid, [re.compile(".*")])


@pytest.mark.skipif(os.geteuid() != 0, reason="map_files of deleted files are root's to read")
@pytest.mark.parametrize("fate", ["deleted", "replaced"])
def test_a_file_that_was_replaced_or_deleted_is_still_the_mapped_one(tmp_path, fate):
    file = tmp_path / "libown.so.1"
    file.write_bytes(b"x" * mmap.PAGESIZE)
    with file.open("rb") as handle:
        number = os.fstat(handle.fileno()).st_ino
        mapping = mmap.mmap(handle.fileno(), mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    other = tmp_path / "other"
    other.write_bytes(b"y" * mmap.PAGESIZE)
    file.unlink() if fate == "deleted" else shutil.move(other, file)
    (found,) = mapped_libraries(os.getpid(), [re.compile(r"libown\.so.*")])
    assert found.name == "libown.so.1"
    assert found.inode[1] == number
    mapping.close()
