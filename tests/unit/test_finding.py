import pytest

from eacgm.events import Evidence
from eacgm.streams.finding import Finding, name_ranks


def test_a_finding_and_its_evidence_survive_plain_values():
    evidence = (
        Evidence("compute_seconds", 2, 0.5, None, "seconds", 0.9),
        Evidence("coverage", None, 1.0, 1.0, "", 0.0),
    )
    one = Finding(
        cause="slow_compute", layer="pytorch", ranks=(2, 5), severity="warning", summary="It is slow.",
        started_ns=7, score=3.5, p_value=1e-9, gpu="g", evidence=evidence, hold_windows=3, share=0.2, needs_steps=True,
    )  # fmt: skip
    plain = one.state()
    assert Finding.from_state(plain) == one
    assert all(isinstance(value, str | int | float | bool | list | None) for value in plain.values())


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ((), "no rank in particular"),
        ((0,), "rank 0"),
        ((0, 1), "ranks 0 and 1"),
        (tuple(range(8)), "ranks 0, 1, 2, 3, 4, 5, 6 and 7"),
        (tuple(range(9)), "ranks 0, 1, 2, 3, 4, 5 and 3 more"),
    ],
)
def test_ranks_are_named_as_people_do(ranks, words):
    assert name_ranks(ranks) == words
