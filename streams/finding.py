"""A finding: what one rule says of one frame."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from eacgm.events import Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A cause with its culprits and its evidence.

    ``started_ns`` is when the fault seems to have begun (UTC ns); ``score`` in nats, ``p_value`` the chance of it in
    health (0 for facts); ``hold_windows`` how many windows without confirmation end it, if more than the default;
    ``share`` is how much of a usual step is lost (0 where that is not the question);
    ``needs_steps`` says that a window without steps neither confirms nor denies it.
    """

    cause: str
    layer: str
    ranks: tuple[int, ...]
    severity: str
    summary: str
    started_ns: int
    score: float = 0.0
    p_value: float = 0.0
    gpu: str | None = None
    evidence: tuple[Evidence, ...] = field(default=())
    hold_windows: int = 0
    share: float = 0.0
    needs_steps: bool = False

    def state(self) -> dict[str, Any]:
        """Return plain values for a snapshot."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["ranks"] = list(self.ranks)
        plain["evidence"] = [{n: getattr(item, n) for n in Evidence.__slots__} for item in self.evidence]
        return plain

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Finding:
        """Return the finding that ``state`` described."""
        evidence = tuple(Evidence(**item) for item in state["evidence"])
        return cls(**{**state, "ranks": tuple(state["ranks"]), "evidence": evidence})


def name_ranks(ranks: tuple[int, ...]) -> str:
    """Return ranks as people write them.

    >>> name_ranks((3,)), name_ranks((4, 5)), name_ranks(tuple(range(12)))
    ('rank 3', 'ranks 4 and 5', 'ranks 0, 1, 2, 3, 4, 5 and 6 more')
    """
    if not ranks:
        return "no rank in particular"
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 8:
        return "ranks " + ", ".join(map(str, ranks[:6])) + f" and {len(ranks) - 6} more"
    return "ranks " + ", ".join(map(str, ranks[:-1])) + f" and {ranks[-1]}"
