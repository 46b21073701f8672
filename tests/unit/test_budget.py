"""The budget sheds in its order, only what helps, and does not flap."""

from itertools import pairwise

from eacgm.producers.budget import ORDER, Budget, Change


def changes(budget, n, own, groups):
    """Run ``n`` intervals; return (interval, change) for every change. A group that is away costs nothing."""
    found = []
    for interval in range(n):
        ratios = {name: 0.0 if name in budget.gone else ratio for name, ratio in groups.items()}
        change = budget.decide(own, ratios)
        if change is not None:
            found.append((interval, change))
    return found


def test_nothing_goes_within_the_limit():
    assert changes(Budget(0.2), 100, 0.05, dict.fromkeys(ORDER, 0.03)) == []


def test_groups_go_one_at_a_time_in_the_order_until_it_fits():
    #            all: 0.05 + 4 x 0.1 = 0.45; without three of them: 0.15
    budget = Budget(0.2)
    found = changes(budget, 20, 0.05, dict.fromkeys(ORDER, 0.1))
    assert found == [(4, Change(ORDER[0], True)), (9, Change(ORDER[1], True)), (14, Change(ORDER[2], True))]
    assert budget.gone == ORDER[:3]
    assert not budget.exhausted


def test_a_group_that_costs_nothing_stays():
    assert changes(Budget(0.2), 20, 0.1, {"cuda": 0.001, "pytorch": 0.3}) == [(4, Change("pytorch", True))]


def test_where_no_probe_is_to_blame_none_goes_and_the_budget_is_exhausted():
    budget = Budget(0.2)
    assert changes(budget, 20, 0.5, {"cuda": 0.001, "": 0.3}) == []
    assert budget.exhausted


def test_one_dear_interval_changes_nothing():
    budget = Budget(0.2)
    changes(budget, 10, 0.05, {"cuda": 0.05})
    assert budget.decide(9.0, {"cuda": 0.05}) is None
    assert changes(budget, 10, 0.05, {"cuda": 0.05}) == []


def test_a_group_comes_back_once_there_is_room_last_gone_first():
    budget = Budget(0.2)
    changes(budget, 10, 0.05, {"torch_ops": 0.2, "cuda": 0.2})
    assert budget.gone == ("torch_ops", "cuda")
    found = changes(budget, 80, 0.05, {"torch_ops": 0.02, "cuda": 0.02})
    assert [change for _, change in found] == [Change("cuda", False), Change("torch_ops", False)]


def test_no_group_comes_back_while_more_than_half_is_used():
    budget = Budget(0.2)
    changes(budget, 5, 0.15, {"cuda": 0.1})
    assert budget.gone == ("cuda",)
    assert changes(budget, 500, 0.15, {"cuda": 0.1}) == []


def test_what_must_go_again_and_again_stays_away_twice_as_long_each_time():
    found = changes(Budget(0.2), 2000, 0.05, {"cuda": 0.5})
    absences = [back - gone for (gone, one), (back, _) in pairwise(found) if one.shed]
    assert absences[:5] == [30, 60, 120, 240, 480]
    assert len(found) < 15
