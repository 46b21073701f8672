from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from eacgm.streams.merge import Merge

entries = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30)), max_size=60)


def drained(merge, lags=lambda source: False):
    return list(merge.release(lags))


@given(entries, st.lists(st.integers(0, 60), max_size=5))
@settings(max_examples=200, deadline=None)
def test_each_item_comes_out_once_in_its_sources_order(items, pauses):
    merge, out = Merge(10_000), []
    for at, (source, published_ns) in enumerate(items):
        merge.add(source, published_ns, (source, at))
        if at in pauses:
            out += drained(merge, lambda source: source == "a")
    out += drained(merge)
    assert sorted(at for _, at in out) == list(range(len(items)))
    orders = defaultdict(list)
    for source, at in out:
        orders[source].append(at)
    assert all(order == sorted(order) for order in orders.values())


@given(st.lists(st.lists(st.integers(0, 100)), min_size=1, max_size=4), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_sorted_sources_come_out_sorted_however_their_reading_interleaves(sources, random):
    """As long as every source with more to come is known to lag, nothing newer overtakes it."""
    merge, out = Merge(10_000), []
    waiting = {number: sorted(source) for number, source in enumerate(sources)}
    for number in waiting:
        merge.expect(number)
    while any(waiting.values()):
        number = random.choice([number for number, source in waiting.items() if source])
        published_ns = waiting[number].pop(0)
        merge.add(number, published_ns, published_ns)
        out += merge.release(lambda source: bool(waiting[source]))
    out += merge.release(lambda source: False)
    assert out == sorted(out)
    assert len(out) == sum(map(len, sources))
