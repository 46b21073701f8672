from hypothesis import given, settings
from hypothesis import strategies as st

from eacgm.streams.acknowledgements import Acknowledgements


@given(st.permutations(range(20)), st.lists(st.integers(1, 6), min_size=20, max_size=20))
@settings(max_examples=200, deadline=None)
def test_nothing_is_acknowledged_before_all_that_stand_before_it_are_done(order, sizes):
    acknowledgements = Acknowledgements()
    acknowledgements.take("a", [offset * 3 for offset in range(12)])  # offsets of a compacted topic have gaps
    acknowledgements.take("a", [offset * 3 for offset in range(12, 20)])
    acknowledgements.take("b", range(20))
    done, position = set(), 0
    order = list(order)
    while order:
        some = [order.pop() for _ in range(min(sizes.pop(), len(order)))]
        done |= set(some)
        told = acknowledgements.finish([("a", offset * 3) for offset in some])
        first_open = next((offset for offset in range(20) if offset not in done), 20)
        expected = (first_open - 1) * 3 + 1 if first_open else 0
        assert told == ({"a": expected} if expected > position else {})
        position = expected
    assert len(acknowledgements) == 20  # all of b


def test_after_a_rebalance_old_places_change_nothing():
    acknowledgements = Acknowledgements()
    acknowledgements.take("a", [5])
    acknowledgements.clear()
    assert acknowledgements.finish([("a", 5)]) == {}
    acknowledgements.take("a", [3])
    assert acknowledgements.finish([("a", 5)]) == {}
    acknowledgements.take("a", [5])
    assert acknowledgements.finish([("a", 3)]) == {"a": 4}
    assert acknowledgements.finish([("a", 5)]) == {"a": 6}
