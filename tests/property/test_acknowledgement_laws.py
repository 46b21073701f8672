from hypothesis import given, settings
from hypothesis import strategies as st

from eacgm.streams.acknowledgements import Acknowledgements


@given(st.permutations(range(20)), st.lists(st.integers(1, 6), min_size=20, max_size=20))
@settings(max_examples=200, deadline=None)
def test_nothing_is_acknowledged_before_all_that_stand_before_it_are_done(order, sizes):
    acknowledgements = Acknowledgements()
    for offset in range(20):
        acknowledgements.take("a", offset * 3, offset)  # offsets of a compacted topic have gaps
        acknowledgements.take("b", offset, -offset)
    done, acked = set(), []
    order = list(order)
    while order:
        some = [order.pop() for _ in range(min(sizes.pop(), len(order)))]
        done |= set(some)
        acked += acknowledgements.finish([("a", offset * 3) for offset in some])
        expected = next((offset for offset in range(20) if offset not in done), 20)
        assert acked == list(range(expected))
    assert len(acknowledgements) == 20  # all of b


def test_after_a_rebalance_old_places_change_nothing():
    acknowledgements = Acknowledgements()
    acknowledgements.take("a", 5, "old")
    acknowledgements.clear()
    assert acknowledgements.finish([("a", 5)]) == []
    acknowledgements.take("a", 5, "new")
    assert acknowledgements.finish([("a", 5)]) == ["new"]
