import pytest

from eacgm.streams.merge import Merge


def nobody(source):
    return False


def filled(*entries, most_items=100):
    merge = Merge(most_items)
    for source, published_ns in entries:
        merge.add(source, published_ns, (source, published_ns))
    return merge


def test_the_oldest_in_front_goes_first_and_a_source_keeps_its_own_order():
    merge = filled(("a", 5), ("a", 3), ("b", 4), ("b", 6))
    # a's 3 stands behind its 5: whoever skips by offsets must never see it first
    assert list(merge.release(nobody)) == [("b", 4), ("a", 5), ("a", 3), ("b", 6)]
    assert len(merge) == 0


def test_an_empty_source_that_lags_holds_everybody_up():
    merge = filled(("a", 1), ("a", 2))
    merge.expect("b")
    assert list(merge.release(lambda source: source == "b")) == []
    merge.add("b", 1, ("b", 1))
    assert list(merge.release(lambda source: source == "b")) == [("a", 1), ("b", 1)]
    assert list(merge.release(nobody)) == [("a", 2)]


def test_an_empty_source_that_is_up_to_date_holds_nobody_up():
    merge = filled(("a", 1))
    merge.expect("b")
    assert list(merge.release(nobody)) == [("a", 1)]


def test_beyond_its_size_the_oldest_go_and_are_counted():
    merge = filled(*(("a", at) for at in range(10)), most_items=7)
    merge.expect("b")
    assert list(merge.release(lambda source: source == "b")) == [("a", 0), ("a", 1), ("a", 2)]
    assert merge.hurried == 3
    assert len(merge) == 7


def test_the_impatient_wait_for_nobody():
    merge = filled(("a", 1))
    merge.expect("b")
    assert list(merge.release(lambda source: True, impatient=True)) == [("a", 1)]


@pytest.mark.parametrize("source", ["a", "unknown"])
def test_a_forgotten_source_is_gone(source):
    merge = filled(("a", 1), ("b", 2))
    merge.forget(source)
    assert len(merge) == (1 if source == "a" else 2)
