"""Environments are read for their allow-listed names and then forgotten."""

import os

import pytest

from eacgm.producers.environ import EnvironReader

SECRET = b"hunter2-" + os.urandom(6).hex().encode()


def write(root, pid, data: bytes) -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "environ").write_bytes(data)


def test_the_readers_buffer_holds_nothing_afterwards(tmp_path):
    write(tmp_path, 7, b"TOKEN=" + SECRET + b"\0RANK=3\0KEY=" + SECRET * 100 + b"\0WORLD_SIZE=4\0")
    reader = EnvironReader(str(tmp_path))
    assert reader.read(7) == {"RANK": "3", "WORLD_SIZE": "4"}
    assert not any(reader._buffer)


def test_entries_beyond_one_buffer_are_found_and_the_buffer_is_wiped(tmp_path):
    padding = b"".join(b"V%d=%s\0" % (index, SECRET * 900) for index in range(150))
    assert len(padding) > 1_500_000
    write(tmp_path, 7, padding + b"RANK=3\0" + padding + b"WORLD_SIZE=4")
    reader = EnvironReader(str(tmp_path))
    assert reader.read(7) == {"RANK": "3", "WORLD_SIZE": "4"}
    assert not any(reader._buffer)


def test_a_string_longer_than_linux_allows_ends_the_reading(tmp_path):
    write(tmp_path, 7, b"RANK=1\0" + b"x" * 600_000 + b"\0WORLD_SIZE=4\0")
    reader = EnvironReader(str(tmp_path))
    assert reader.read(7) == {"RANK": "1"}
    assert not any(reader._buffer)


def test_a_process_that_is_gone_has_no_environment(tmp_path):
    assert EnvironReader(str(tmp_path)).read(7) is None


def test_an_empty_environment_names_nothing(tmp_path):
    write(tmp_path, 7, b"")
    assert EnvironReader(str(tmp_path)).read(7) == {}


def test_reads_its_own_process_for_real():
    found = EnvironReader("").read(os.getpid())
    assert found is not None
    assert set(found) <= {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}


def test_an_environment_that_may_not_be_read_says_so():
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            with pytest.raises(PermissionError):
                EnvironReader("").read(1)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
