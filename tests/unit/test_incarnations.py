"""Restarted jobs keep their name and get the next incarnation."""

from eacgm.producers.incarnations import Incarnations


def test_the_restart_count_decides():
    lives = Incarnations()
    assert lives.join("j", 0, 100, 2) == 2
    assert lives.join("j", 1, 101, 2) == 2
    assert lives.join("j", 0, 200, 3) == 3
    assert lives.join("j", 1, 201, 3) == 3


def test_without_a_count_a_rank_that_comes_back_after_all_have_gone_is_a_restart():
    lives = Incarnations()
    assert [lives.join("j", rank, 100 + rank, None) for rank in (0, 1)] == [0, 0]
    lives.leave("j", 100)
    lives.leave("j", 101)
    assert [lives.join("j", rank, 200 + rank, None) for rank in (1, 0)] == [1, 1]


def test_a_single_rank_that_comes_back_while_others_live_is_no_restart():
    lives = Incarnations()
    lives.join("j", 0, 100, None)
    lives.join("j", 1, 101, None)
    lives.leave("j", 100)
    assert lives.join("j", 0, 200, None) == 0


def test_a_late_rank_of_a_job_whose_first_ranks_have_gone_is_no_restart():
    lives = Incarnations()
    lives.join("j", 0, 100, None)
    lives.leave("j", 100)
    assert lives.join("j", 1, 101, None) == 0


def test_a_job_run_again_under_its_old_name_counts_on():
    lives = Incarnations()
    lives.join("j", 0, 100, 0)
    lives.leave("j", 100)
    assert lives.join("j", 0, 200, 0) == 1
    assert lives.join("j", 1, 201, 0) == 1
    assert lives.join("j", 0, 300, 1) == 2


def test_jobs_count_for_themselves():
    lives = Incarnations()
    assert (lives.join("a", 0, 1, 4), lives.join("b", 0, 2, None)) == (4, 0)
    lives.leave("unknown", 3)
