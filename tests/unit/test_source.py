"""The demo's data source, as a real process on the loopback."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from eacgm.demo.source import N_CLASSES, N_FEATURES, make_batches

BATCH = 8
BATCH_BYTES = BATCH * (N_FEATURES + 1)


@contextlib.contextmanager
def running_source() -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "eacgm.demo.source", "--batch", str(BATCH), "--seed", "3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(timeout=10)


@contextlib.contextmanager
def connected(port: int, rank: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(rank.to_bytes(4, "big"))
        yield connection


def fetch(connection: socket.socket) -> tuple[bytes, float]:
    started = time.monotonic()
    connection.sendall(b"n")
    return connection.recv(BATCH_BYTES, socket.MSG_WAITALL), time.monotonic() - started


def test_each_rank_gets_its_own_batches_in_turn():
    with running_source() as (_, port), connected(port, 0) as zero, connected(port, 1) as one:
        expected = {rank: make_batches(rank, BATCH, seed=3) for rank in (0, 1)}
        for turn in range(3):
            assert fetch(zero)[0] == expected[0][turn]
            assert fetch(one)[0] == expected[1][turn]


def test_labels_are_classes():
    batch = make_batches(1, BATCH, seed=0)[0]
    assert len(batch) == BATCH_BYTES
    assert max(batch[-BATCH:]) < N_CLASSES


def test_delay_holds_back_one_rank_and_ends_at_zero():
    with running_source() as (process, port), connected(port, 0) as zero, connected(port, 1) as one:
        for connection in (zero, one):
            fetch(connection)
        process.stdin.write("delay 1 0.3\n")
        process.stdin.flush()
        time.sleep(0.2)
        assert fetch(one)[1] >= 0.3
        assert fetch(zero)[1] < 0.3
        process.stdin.write("delay 1 0\n")
        process.stdin.flush()
        time.sleep(0.2)
        assert fetch(one)[1] < 0.3


def test_unknown_line_is_told_and_harmless():
    command = [sys.executable, "-m", "eacgm.demo.source"]
    done = subprocess.run(command, input="slower please\n", capture_output=True, text=True, timeout=20)
    assert done.returncode == 0
    assert "expected: delay RANK SECONDS" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("seed", [0, 1])
def test_same_seed_gives_the_same_batches(seed):
    assert make_batches(2, BATCH, seed) == make_batches(2, BATCH, seed)
