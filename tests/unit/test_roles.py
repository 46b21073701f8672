"""Of the processes that say RANK=3, one is the rank."""

from eacgm.producers.identity import Identity
from eacgm.producers.roles import LAUNCHER, RANK, WORKER, Candidate, assign_roles

PYTHON = "python3"


def candidate(pid, parent, rank, *, command=PYTHON, strength=5, job="j", role=None, active=False, start=None):
    identity = Identity(job=job, rank=rank, strength=strength)
    return Candidate(pid, parent, pid if start is None else start, command, identity, role, active)


def test_children_of_the_training_process_are_workers():
    roles = assign_roles([candidate(10, 1, 0), candidate(11, 10, 0), candidate(12, 11, 0), candidate(20, 1, 1)])
    assert roles == {10: RANK, 11: WORKER, 12: WORKER, 20: RANK}


def test_a_shell_around_the_training_process_is_a_launcher():
    roles = assign_roles([candidate(9, 1, 0, command="bash"), candidate(10, 9, 0), candidate(11, 10, 0)])
    assert roles == {9: LAUNCHER, 10: RANK, 11: WORKER}


def test_a_shell_below_the_training_process_is_no_rank_either():
    roles = assign_roles([candidate(10, 1, 0), candidate(11, 10, 0, command="sh")])
    assert roles == {10: RANK, 11: LAUNCHER}


def test_a_parent_whose_children_carry_other_ranks_is_a_launcher():
    roles = assign_roles([candidate(9, 1, 0), candidate(10, 9, 0), candidate(11, 9, 1)])
    assert roles == {9: LAUNCHER, 10: RANK, 11: RANK}


def test_a_scheduler_task_that_starts_ranks_is_a_launcher_even_of_another_job_name():
    roles = assign_roles([candidate(9, 1, 0, strength=2, job="slurm-7"), candidate(10, 9, 0), candidate(11, 9, 1)])
    assert roles == {9: LAUNCHER, 10: RANK, 11: RANK}


def test_orphaned_workers_do_not_become_the_rank():
    roles = assign_roles([candidate(11, 10, 0, role=WORKER), candidate(12, 10, 0, role=WORKER)])
    assert roles == {11: WORKER, 12: WORKER}


def test_a_new_process_becomes_the_rank_beside_orphans_of_the_old_one():
    roles = assign_roles([candidate(11, 10, 0, role=WORKER), candidate(30, 1, 0)])
    assert roles == {11: WORKER, 30: RANK}


def test_the_rank_stays_the_rank_when_another_top_process_appears():
    roles = assign_roles([candidate(10, 1, 0, role=RANK, start=50), candidate(30, 1, 0, start=40)])
    assert roles == {10: RANK, 30: WORKER}


def test_the_process_that_trains_is_the_rank():
    roles = assign_roles([candidate(10, 1, 0, role=RANK), candidate(11, 10, 0, role=WORKER, active=True)])
    assert roles == {10: WORKER, 11: RANK}


def test_a_rank_that_trains_is_no_launcher_whatever_it_starts():
    roles = assign_roles([candidate(10, 1, 3, role=RANK, active=True), candidate(11, 10, 0), candidate(20, 1, 0)])
    assert roles == {10: RANK, 11: WORKER, 20: RANK}


def test_a_worker_of_what_turns_out_to_be_a_launcher_becomes_the_rank():
    first = candidate(10, 1, 0, role=RANK)
    roles = assign_roles([first, candidate(11, 10, 0, role=WORKER), candidate(12, 10, 1)])
    assert roles == {10: LAUNCHER, 11: RANK, 12: RANK}


def test_unknown_ranks_are_ranks_of_their_own_and_their_children_workers():
    roles = assign_roles([candidate(10, 1, None), candidate(11, 10, None), candidate(20, 1, None)])
    assert roles == {10: RANK, 11: WORKER, 20: RANK}


def test_a_parent_that_is_younger_than_its_child_is_another_process_with_its_pid():
    roles = assign_roles([candidate(10, 1, 0, start=900), candidate(11, 10, 1, start=100)])
    assert roles == {10: RANK, 11: RANK}


def test_a_loop_of_parents_ends():
    roles = assign_roles([candidate(10, 11, 0, start=5), candidate(11, 10, 0, start=5)])
    assert set(roles) == {10, 11}
