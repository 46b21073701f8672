"""One rank of an ordinary DistributedDataParallel job: a digit-like classifier, trained on the CPU over gloo.

Run by any Python with torch >= 1.13, once per rank, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in
the environment, as torchrun would set them. It knows nothing of its monitor and imports torch and the standard
library alone.

Its batches come over TCP from a data source: it sends its rank (4 bytes, big-endian), then one byte for each batch
that it wants; the answer is ``batch * features`` pixels (uint8) followed by ``batch`` labels (uint8). The job ends
when the source hangs up.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class BatchReader:
    """Reads batches, one request at a time, as a loader without prefetching does."""

    def __init__(self, address: tuple[str, int], rank: int, batch: int, features: int) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(rank.to_bytes(4, "big"))
        self._batch, self._features = batch, features
        self._buffer = bytearray(batch * (features + 1))

    def next_batch(self) -> tuple[Any, Any] | None:
        """Return pixels ``(batch, features)`` in 0-1 and labels ``(batch,)``; None once the source has hung up."""
        try:
            self._socket.sendall(b"n")
            view = memoryview(self._buffer)
            while view:
                n_read = self._socket.recv_into(view)
                if n_read == 0:
                    return None
                view = view[n_read:]
        except ConnectionError:
            return None
        raw = torch.frombuffer(self._buffer, dtype=torch.uint8)
        pixels = raw[: self._batch * self._features].view(self._batch, self._features)
        return pixels.float() / 255.0, raw[self._batch * self._features :].long()


def classifier(features: int, hidden: int, classes: int) -> nn.Module:
    """Return a perceptron with two hidden layers."""
    return nn.Sequential(
        nn.Linear(features, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )


def train_step(model: nn.Module, optimizer: Any, pixels: Any, labels: Any) -> float:
    """Run forward, backward (gradients averaged over all ranks) and the update; return the loss in nats."""
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(pixels), labels)
    loss.backward()
    optimizer.step()
    return float(loss.item())


def train(reader: BatchReader, arguments: argparse.Namespace, rank: int) -> None:
    """Train until the steps are done or the data source hangs up, telling step, loss and mean step time."""
    torch.manual_seed(0)
    model = DistributedDataParallel(classifier(arguments.features, arguments.hidden, arguments.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.learning_rate, momentum=0.9)
    since, told = time.monotonic(), 0
    for step in range(1, arguments.steps + 1):
        batch = reader.next_batch()
        if batch is None:
            print(f"rank {rank}: the data source has hung up after step {step - 1}", flush=True)
            return
        loss = train_step(model, optimizer, *batch)
        if step == 1 or step % arguments.print_every == 0:
            now = time.monotonic()
            step_ms = (now - since) * 1000.0 / (step - told)
            print(f"rank {rank} step {step} loss {loss:.4f} {step_ms:.2f} ms/step", flush=True)
            since, told = now, step
    print(f"rank {rank}: done", flush=True)


def main() -> None:
    """Join the process group as the environment says, and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, metavar="HOST:PORT", help="the data source")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--features", type=int, default=784)
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--print-every", type=int, default=20)
    arguments = parser.parse_args()
    # One thread a rank, as ranks that share a host are run; more would only fight for the same cores.
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    host, _, port = arguments.data.rpartition(":")
    reader = BatchReader((host, int(port)), rank, arguments.batch, arguments.features)
    dist.init_process_group("gloo", init_method="env://")
    try:
        train(reader, arguments, rank)
    except RuntimeError as error:
        # A peer that has gone breaks the next collective; for the others that is the end of the job.
        print(f"rank {rank}: stopped ({str(error).splitlines()[0]})", flush=True)
    # No destroy_process_group: with a peer already gone it may wait for ever.
    os._exit(0)


if __name__ == "__main__":
    main()
