"""The demo's data source: a process of its own that serves every rank its batches over TCP.

It listens on a free port of the loopback and prints that port. Lines on its standard input steer it: ``delay RANK
SECONDS`` makes every later batch of that rank late by so much, as a slow disk or a busy storage server would. The end
of its standard input ends it, and with it the job. The protocol is described in ``eacgm.demo.job``.
"""

from __future__ import annotations

import argparse
import socket
import sys
import threading
import time

import numpy as np

from eacgm.errors import EacgmError

N_FEATURES = 784
N_CLASSES = 10
#: batches made in advance for each rank, and served in turn
N_BATCHES = 32


def make_batches(rank: int, batch: int, seed: int) -> list[bytes]:
    """Return batches of noisy pictures of ten prototypes: ``batch * 784`` pixels, then ``batch`` labels, all uint8.

    The prototypes are the same for every rank, the pictures are not.

    >>> [len(made) for made in make_batches(0, 4, seed=1)][:2]
    [3140, 3140]
    """
    prototypes = np.random.default_rng(seed).uniform(0, 255, (N_CLASSES, N_FEATURES))
    random = np.random.default_rng((seed, rank))
    made = []
    for _ in range(N_BATCHES):
        labels = random.integers(0, N_CLASSES, batch, dtype=np.uint8)
        # Noise well above the prototypes' contrast: the loss falls over minutes, not at once.
        pixels = prototypes[labels] * 0.12 + random.normal(110, 80, (batch, N_FEATURES))
        made.append(np.clip(pixels, 0, 255).astype(np.uint8).tobytes() + labels.tobytes())
    return made


class DataSource:
    """Serves batches to any number of ranks, each on its own connection and thread."""

    def __init__(self, batch: int, seed: int) -> None:
        self._batch, self._seed = batch, seed
        self._delays_seconds: dict[int, float] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))

    @property
    def port(self) -> int:
        """The TCP port on the loopback."""
        port: int = self._listener.getsockname()[1]
        return port

    def delay(self, rank: int, seconds: float) -> None:
        """Make every later batch of ``rank`` late by ``seconds``; 0 ends it."""
        self._delays_seconds[rank] = seconds

    def serve(self) -> None:
        """Accept ranks until the process ends."""
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve_rank, args=(connection,), daemon=True).start()

    def _serve_rank(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            try:
                head = connection.recv(4, socket.MSG_WAITALL)
                if len(head) < 4:
                    return
                rank = int.from_bytes(head, "big")
                batches = make_batches(rank, self._batch, self._seed)
                served = 0
                while connection.recv(1):
                    time.sleep(self._delays_seconds.get(rank, 0.0))
                    connection.sendall(batches[served % N_BATCHES])
                    served += 1
            except ConnectionError:
                return


def steer(source: DataSource, line: str) -> None:
    """Carry out one line of the standard input; raises ``EacgmError`` for a line that says nothing known."""
    match line.split():
        case ["delay", rank, seconds] if rank.isdecimal():
            source.delay(int(rank), float(seconds))
        case _:
            raise EacgmError(f"data source: cannot read {line.strip()!r}; expected: delay RANK SECONDS")


def main() -> None:
    """Serve until the standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m eacgm.demo.source", description=__doc__)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    source = DataSource(arguments.batch, arguments.seed)
    print(source.port, flush=True)
    threading.Thread(target=source.serve, daemon=True).start()
    for line in sys.stdin:
        try:
            steer(source, line)
        except (EacgmError, ValueError) as error:
            print(f"eacgm demo: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
