"""Who belongs to one incarnation of a job: a row per rank, sorted, with what is known of each.

Identity is state: a process says who it is now and then, and stays that until it says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eacgm.events import Event, IntArray, ProcessEvent


@dataclass(slots=True)
class Member:
    """One rank: where it runs and whether it still does."""

    node: str = ""
    group: str = ""
    pid: int = 0
    gpu_uuids: list[str] = field(default_factory=list)
    exited: bool = False


class Roster:
    """The expected ranks: those seen, and ``0..world_size-1`` where a process told the size of its world."""

    def __init__(self, max_ranks: int) -> None:
        self._max_ranks = max_ranks
        self._members: dict[int, Member] = {}
        self._by_gpu: dict[tuple[str, str], set[int]] = {}
        self._rows_by_gpu: dict[tuple[str, str], list[int]] = {}
        self._rows_by_node: dict[str, list[int]] = {}
        self.rows: dict[int, int] = {}
        self.ranks: IntArray = np.empty(0, dtype=np.int64)
        self.rank_list: list[int] = []
        self.nodes: list[str] = []
        self.groups: list[str] = []
        self.refused = 0
        #: grows with every change of who is where
        self.version = 0
        self._changed = False

    def __len__(self) -> int:
        """Return the number of expected ranks."""
        return len(self.rows)

    def admit(self, ranks: Iterable[int]) -> IntArray | None:
        """Expect these ranks too; return each former row's new place, or None if nobody is new."""
        new = [rank for rank in ranks if rank not in self.rows]
        allowed = [rank for rank in new if 0 <= rank < self._max_ranks]
        self.refused += len(new) - len(allowed)
        if not allowed:
            return None
        before = self.ranks
        for rank in allowed:
            self._members[rank] = Member()
        self.ranks = np.array(sorted(self._members), dtype=np.int64)
        self.rank_list = self.ranks.tolist()
        self.rows = {rank: row for row, rank in enumerate(self.rank_list)}
        self._describe()
        return np.searchsorted(self.ranks, before).astype(np.int64)

    def identify(self, event: ProcessEvent) -> bool:
        """Remember who a rank's process is; return True if this says that it has just ended."""
        assert event.rank is not None
        member = self._members[event.rank]
        if event.state == "exited":
            if member.exited or (member.pid and event.pid and event.pid != member.pid):
                return False  # told twice, or a predecessor's end
            member.exited = True
            return True
        member.exited = False
        member.pid = event.pid
        if (member.node, member.group, member.gpu_uuids) == (event.node, event.group, event.gpu_uuids):
            return False
        for ranks in self._by_gpu.values():
            # wherever it was: other messages may have moved the rank to another node meanwhile
            ranks.discard(event.rank)
        member.node, member.group = event.node, event.group
        member.gpu_uuids = list(event.gpu_uuids)
        for uuid in event.gpu_uuids:
            self._by_gpu.setdefault((event.node, uuid), set()).add(event.rank)
        self._changed = True
        return False

    def settle(self) -> None:
        """Bring the lists up to date after processes were identified."""
        if self._changed:
            self._describe()
            self._changed = False

    def place(self, event: Event, group: str = "") -> None:
        """Learn node and group from any message of a rank."""
        assert event.rank is not None
        row = self.rows[event.rank]
        if (event.node and event.node != self.nodes[row]) or (group and group != self.groups[row]):
            member = self._members[event.rank]
            member.node = event.node or member.node
            member.group = group or member.group
            self._changed = True

    def exited(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which rows' processes have ended, of shape ``(n_ranks,)``."""
        return np.array([self._members[rank].exited for rank in self.rank_list], dtype=bool)

    def rows_of_gpu(self, node: str, uuid: str, pids: IntArray) -> list[int]:
        """Return the rows of the ranks that use a GPU: by their own word, else by the processes on it."""
        rows = self._rows_by_gpu.get((node, uuid))
        if rows is not None:
            return rows
        on_it = set(pids.tolist())
        return [
            self.rows[rank]
            for rank, member in sorted(self._members.items())
            if member.pid in on_it and member.node == node
        ]

    def rows_of_node(self, node: str) -> list[int]:
        """Return the rows of the ranks on a node."""
        return self._rows_by_node.get(node, [])

    def knows_gpu(self, node: str, uuid: str, rank: int | None) -> bool:
        """Return whether a GPU's rows follow from what its ranks said of themselves (or it names its rank)."""
        return rank is not None or (node, uuid) in self._rows_by_gpu

    def _describe(self) -> None:
        self.version += 1
        # new lists, never changed in place: frames already made keep theirs
        members = [self._members[rank] for rank in self.rank_list]
        self.nodes = [member.node for member in members]
        self.groups = [member.group for member in members]
        self._rows_by_node = {}
        for row, node in enumerate(self.nodes):
            self._rows_by_node.setdefault(node, []).append(row)
        self._rows_by_gpu = {
            gpu: sorted(self.rows[rank] for rank in ranks) for gpu, ranks in self._by_gpu.items() if ranks
        }

    def state(self) -> dict[str, Any]:
        """Return everything that the future depends on."""
        return {
            "refused": self.refused,
            "members": {rank: [m.node, m.group, m.pid, m.gpu_uuids, m.exited] for rank, m in self._members.items()},
            "by_gpu": [[node, uuid, sorted(ranks)] for (node, uuid), ranks in self._by_gpu.items()],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        self.refused = state["refused"]
        self._members = {int(rank): Member(*values) for rank, values in state["members"].items()}
        self._by_gpu = {(node, uuid): set(ranks) for node, uuid, ranks in state["by_gpu"]}
        self.ranks = np.array(sorted(self._members), dtype=np.int64)
        self.rank_list = self.ranks.tolist()
        self.rows = {rank: row for row, rank in enumerate(self.rank_list)}
        self._describe()
