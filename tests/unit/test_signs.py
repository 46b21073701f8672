import numpy as np

from eacgm.events import FrameEvent
from eacgm.streams.signs import Signs


def observe(signs, present, ranks=None, exited=None):
    ranks = list(range(len(present))) if ranks is None else ranks
    features = [] if exited is None else ["exited"]
    values = np.empty((len(ranks), 0)) if exited is None else np.array(exited, dtype=float)[:, None]
    frame = FrameEvent(
        job="j", start_ns=0, end_ns=10**9, ranks=np.array(ranks), present=list(present), nodes=[""] * len(ranks),
        groups=[""] * len(ranks), features=features, values=values,
    )  # fmt: skip
    signs.observe(frame, {name: at for at, name in enumerate(features)})


def test_a_rank_is_unseen_for_as_long_as_it_tells_nothing():
    signs = Signs()
    for _ in range(3):
        observe(signs, [True, False])
    assert signs.unseen_windows.tolist() == [0, 3]
    observe(signs, [True, True])
    assert signs.unseen_windows.tolist() == [0, 0]


def test_a_rank_that_has_ended_is_not_unseen():
    signs = Signs()
    observe(signs, [True, True], exited=[0, 1])
    observe(signs, [False, False], exited=[np.nan, np.nan])
    assert signs.unseen_windows.tolist() == [1, 0]
    assert not signs.all_ended
    observe(signs, [True, False], exited=[1, np.nan])
    assert signs.all_ended


def test_nobody_has_ended_where_nobody_is():
    assert not Signs().all_ended


def test_memories_stay_with_their_rank_when_another_appears_before_it():
    signs = Signs()
    observe(signs, [False, True], ranks=[3, 5], exited=[np.nan, 1])
    assert signs.grew("gpu_ecc_errors", np.array([4.0, 7.0])).tolist() == [False, False]
    observe(signs, [True, False, False], ranks=[1, 3, 5], exited=[0, np.nan, np.nan])
    assert signs.unseen_windows.tolist() == [0, 2, 0]
    assert signs.grew("gpu_ecc_errors", np.array([9.0, 4.0, 8.0])).tolist() == [False, False, True]


def test_a_count_that_was_not_told_for_a_while_is_compared_with_its_last():
    signs = Signs()
    observe(signs, [True])
    assert not signs.grew("gpu_ecc_errors", np.array([2.0]))[0]
    assert not signs.grew("gpu_ecc_errors", np.array([np.nan]))[0]
    assert not signs.grew("gpu_ecc_errors", np.array([2.0]))[0]
    assert signs.grew("gpu_ecc_errors", np.array([3.0]))[0]
    assert not signs.grew("gpu_ecc_errors", np.array([1.0]))[0]


def test_state_is_all_there_is():
    signs, fresh = Signs(), Signs()
    observe(signs, [True, False, True], exited=[0, np.nan, 1])
    signs.grew("gpu_ecc_errors", np.array([1.0, 2.0, 3.0]))
    fresh.load(signs.state())
    for one in (signs, fresh):
        observe(one, [False, False, False])
    assert fresh.unseen_windows.tolist() == signs.unseen_windows.tolist() == [1, 2, 0]
    assert fresh.grew("gpu_ecc_errors", np.array([1.0, 3.0, np.nan])).tolist() == [False, True, False]
