"""Discovery on the checked-in nodes and on a tree that changes under the scan."""

import shutil
from pathlib import Path

import pytest

from eacgm.producers.processes import ProcessTable

FIXTURES = Path(__file__).parent / "fixtures"
RANK_0 = ("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=m", "TOKEN=hunter2")
RANK_1 = ("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=m")


class Tree:
    """A /proc that a test writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc").mkdir()

    def put(self, pid, start, *environ, command="python", parent=1, state="S", threads=1, program=1, status=0):
        folder = self.root / "proc" / str(pid)
        folder.mkdir(exist_ok=True)
        fields = [state, parent, *[0] * 15, threads, 0, start, *[0] * 5, program, *[0] * 23, status]
        (folder / "stat").write_text(f"{pid} ({command}) {' '.join(map(str, fields))}\n")
        (folder / "environ").write_bytes(b"".join(entry.encode() + b"\0" for entry in environ))
        (folder / "cgroup").write_text("0::/\n")

    def remove(self, pid):
        shutil.rmtree(self.root / "proc" / str(pid))


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.fixture
def table(tree):
    return ProcessTable(str(tree.root))


def roles(processes):
    return {process.pid: process.role for process in processes}


def test_kubernetes_node_ranks_workers_and_container():
    table = ProcessTable(str(FIXTURES / "node_v2"))
    found = table.scan().found
    assert roles(found) == {110: "rank", 111: "rank", 120: "worker"}
    rank = next(process for process in found if process.pid == 110)
    assert (rank.identity.job, rank.incarnation, rank.identity.rank) == ("llama-ft-7", 1, 4)
    assert rank.container is not None
    assert len(rank.container) == 64
    assert next(process.incarnation for process in found if process.pid == 120) == 1


def test_workstation_wrapper_and_malformed_ranks():
    found = ProcessTable(str(FIXTURES / "node_v1")).scan().found
    assert roles(found) == {201: "rank", 202: "rank", 203: "rank", 204: "rank"}
    by_pid = {process.pid: process.identity for process in found}
    assert by_pid[201].job == "127.0.0.1:29501"
    assert by_pid[203].rank is None
    assert "'one'" in by_pid[203].problems[0]
    assert (by_pid[204].rank, by_pid[204].world_size) == (9, None)


def test_a_scan_without_changes_reads_no_environment(tree, table):
    tree.put(10, 100, *RANK_0)
    tree.put(20, 100, "PATH=/bin")
    table.scan()
    for pid in (10, 20):
        (tree.root / "proc" / str(pid) / "environ").unlink()
    for _ in range(40):
        changes = table.scan()
        assert [*changes.found, *changes.changed, *changes.ended] == []
    assert roles(table.processes) == {10: "rank"}


def test_a_process_that_starts_later_is_found_by_the_next_scan(tree, table):
    tree.put(10, 100, *RANK_0)
    assert roles(table.scan().found) == {10: "rank"}
    tree.put(11, 500, *RANK_1)
    tree.put(12, 510, *RANK_0, parent=10)
    assert roles(table.scan().found) == {11: "rank", 12: "worker"}


def test_a_process_seen_between_fork_and_exec_is_looked_at_again(tree, table):
    tree.put(10, 100, "PATH=/bin", program=1)
    assert table.scan().found == []
    tree.put(10, 100, *RANK_0, program=2)
    assert roles(table.scan().found) == {10: "rank"}


def test_an_old_process_that_executes_is_found_at_once_where_the_kernel_tells(tree, table):
    tree.put(10, 100, "PATH=/bin", program=1)
    for _ in range(30):
        table.scan()
    tree.put(10, 100, *RANK_0, program=2)
    assert roles(table.scan(executed=[10]).found) == {10: "rank"}


def test_an_old_process_that_executes_is_found_after_a_while_in_any_case(tree, table):
    tree.put(10, 100, "PATH=/bin", program=1)
    for _ in range(30):
        table.scan()
    tree.put(10, 100, *RANK_0, program=2)
    found = [process for _ in range(16) for process in table.scan().found]
    assert roles(found) == {10: "rank"}


def test_a_shell_that_executes_the_training_becomes_the_rank(tree, table):
    tree.put(10, 100, *RANK_0, command="bash", program=1)
    assert table.scan().found == []
    tree.put(10, 100, *RANK_0, command="python", program=2)
    assert roles(table.scan().found) == {10: "rank"}


def test_a_rank_that_executes_another_program_is_told_as_changed(tree, table):
    tree.put(10, 100, *RANK_0, program=1)
    table.scan()
    tree.put(10, 100, *RANK_0, program=2)
    assert [process.executions for process in table.scan().changed] == [2]


def test_a_pid_that_comes_back_is_another_process(tree, table):
    tree.put(10, 100, *RANK_0)
    old = table.scan().found[0]
    tree.put(10, 900, *RANK_1)
    changes = table.scan({10: 5})
    assert (changes.ended, old.state, old.exit_code) == ([old], "exited", 5)
    assert [process.identity.rank for process in changes.found] == [1]


def test_a_pid_that_comes_back_as_a_stranger_is_watched_no_more(tree, table):
    tree.put(10, 100, *RANK_0)
    table.scan()
    tree.put(10, 900, "PATH=/bin")
    assert len(table.scan().ended) == 1
    assert table.processes == []


@pytest.mark.parametrize(("told", "code"), [({10: 1}, 1), ({10: -9}, -9), ({}, None), ({10: None}, None)])
def test_an_exit_has_the_code_that_the_kernel_told(tree, table, told, code):
    tree.put(10, 100, *RANK_0)
    table.scan()
    tree.remove(10)
    ended = table.scan(told).ended
    assert [(process.state, process.exit_code) for process in ended] == [("exited", code)]


@pytest.mark.parametrize(("status", "code"), [(3 << 8, 3), (9, -9), (11 | 0x80, -11), (0, 0)])
def test_a_zombie_has_exited_with_its_status(tree, table, status, code):
    tree.put(10, 100, *RANK_0)
    table.scan()
    tree.put(10, 100, state="Z", threads=0, program=0, status=status)
    assert [process.exit_code for process in table.scan().ended] == [code]
    assert table.scan().ended == []


def test_a_leader_that_ended_before_its_threads_is_alive(tree, table):
    tree.put(10, 100, *RANK_0)
    table.scan()
    tree.put(10, 100, *RANK_0, state="Z", threads=3)
    assert table.scan().ended == []


def test_a_restart_is_the_next_incarnation_for_ranks_and_workers(tree, table):
    tree.put(10, 100, *RANK_0)
    tree.put(11, 100, *RANK_1)
    assert {process.incarnation for process in table.scan().found} == {0}
    tree.remove(10)
    tree.remove(11)
    tree.put(20, 500, *RANK_0)
    tree.put(21, 500, *RANK_1)
    tree.put(22, 501, *RANK_1, parent=21)
    assert [process.incarnation for process in table.scan().found] == [1, 1, 1]


def test_a_rank_of_the_scheduler_alone_is_held_back_until_it_is_no_launcher(tree, table):
    task = ("SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=2")
    tree.put(10, 100, *task)
    for _ in range(3):
        assert table.scan().found == []
    tree.put(11, 300, *task, *RANK_0, parent=10)
    assert roles(table.scan().found) == {11: "rank"}
    for _ in range(10):
        assert table.scan().found == []


def test_a_rank_of_the_scheduler_alone_counts_in_the_end(tree, table):
    tree.put(10, 100, "SLURM_JOB_ID=7", "SLURM_PROCID=0", "SLURM_NTASKS=2")
    found = [process for _ in range(8) for process in table.scan().found]
    assert roles(found) == {10: "rank"}


def test_a_launcher_that_was_taken_for_a_rank_does_not_make_a_restart(tree, table):
    tree.put(10, 100, *RANK_0)
    table.scan()
    tree.put(11, 300, *RANK_0, parent=10)
    tree.put(12, 300, *RANK_1, parent=10)
    changes = table.scan()
    assert roles(changes.changed) == {10: "launcher"}
    assert {process.pid: process.incarnation for process in changes.found} == {11: 0, 12: 0}
    assert roles(table.processes) == {11: "rank", 12: "rank"}


def test_the_process_that_trains_takes_over(tree, table):
    tree.put(10, 100, *RANK_0)
    tree.put(11, 300, *RANK_0, parent=10)
    table.scan()
    table.mark_active(11)
    table.mark_active(999)
    assert roles(table.scan().changed) == {10: "worker", 11: "rank"}


def test_only_the_wanted_jobs_are_followed(tree):
    tree.put(10, 100, *RANK_0)
    tree.put(11, 100, "RANK=0", "MASTER_ADDR=other")
    table = ProcessTable(str(tree.root), only_jobs=["other"])
    assert roles(table.scan().found) == {11: "rank"}


def test_a_process_that_vanishes_in_mid_scan_is_passed_over(tree, table):
    tree.put(10, 100, *RANK_0)
    (tree.root / "proc" / "11").mkdir()
    assert roles(table.scan().found) == {10: "rank"}
