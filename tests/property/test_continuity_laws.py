from hypothesis import example, given, settings
from hypothesis import strategies as st

from eacgm.streams.continuity import Continuity, Verdict


class Consumer:
    """A consumer that buffers messages, and after a rebalance may read somewhere else than it was told."""

    def __init__(self, offsets, strays):
        self.log, self.strays = offsets, dict(strays)
        self.position, self.buffer, self.n_read = 0, [], 0
        self.rebalanced = False

    def seek(self, offset):
        # what is buffered already is still handed out
        self.position = offset

    def read(self):
        self.rebalanced = False
        if not self.buffer:
            self.n_read += 1
            if self.n_read in self.strays:
                self.position = self.strays.pop(self.n_read)
                self.rebalanced = True
            self.buffer = [offset for offset in self.log if offset >= self.position][:3]
            if self.buffer:
                self.position = self.buffer[-1] + 1
        return self.buffer.pop(0) if self.buffer else None


@given(
    st.sets(st.integers(0, 40), min_size=1),
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 45)), max_size=4),
)
@example({0, 1}, [(1, 1), (2, 1)])
@settings(max_examples=300, deadline=None)
def test_all_are_taken_once_and_in_order_wherever_the_consumer_strays(offsets, strays):
    log = sorted(offsets)
    consumer, continuity, taken = Consumer(log, strays), Continuity({"a": 0}), []
    for _ in range(400):
        offset = consumer.read()
        if consumer.rebalanced:
            continuity = Continuity({"a": continuity.expected("a")})  # what a gap is, is found out anew
        if offset is None:
            consumer.seek(continuity.expected("a"))  # a stray beyond the end: whoever looks after the worker restarts
            continue
        verdict = continuity.judge("a", offset)
        if verdict is Verdict.TAKE:
            taken.append(offset)
        elif verdict is Verdict.SEEK:
            consumer.seek(continuity.expected("a"))
    assert taken == log


def test_a_source_that_is_not_ours_is_dropped():
    assert Continuity({}).judge("a", 0) is Verdict.DROP


def test_a_run_is_taken_whole_only_if_it_is_the_very_next():
    continuity = Continuity({"a": 3})
    assert not continuity.follow("a", 4, 9)
    assert not continuity.follow("b", 0, 9)
    assert continuity.follow("a", 3, 9)
    assert continuity.expected("a") == 10
