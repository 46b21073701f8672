"""Who a process is, from allow-listed names only."""

import pytest

from eacgm.producers.identity import ALLOWED_NAMES, MAX_VALUE_BYTES, allowed, identify

TORCHRUN = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "llama",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "MASTER_ADDR": "a",
    "MASTER_PORT": "1",
}


def raw(*entries: str) -> bytes:
    return b"".join(entry.encode() + b"\0" for entry in entries)


def test_only_allow_listed_names_are_taken():
    environ = raw("AWS_SECRET_ACCESS_KEY=hunter2", "RANK=1", "MY_RANK=2", "RANKS=3", "HF_TOKEN=RANK=4", "WORLD_SIZE=8")
    assert allowed(environ) == {"RANK": "1", "WORLD_SIZE": "8"}


def test_a_name_inside_another_value_is_not_an_entry():
    assert allowed(raw("NOTE=x\nRANK=1", "ARGS=--env RANK=2")) == {}


def test_first_entry_of_the_environment_counts_and_so_does_the_first_of_two():
    assert allowed(raw("RANK=1", "RANK=2")) == {"RANK": "1"}


def test_no_secret_looking_name_is_on_the_list():
    assert not [name for name in ALLOWED_NAMES if any(word in name for word in ("KEY", "TOKEN", "SECRET", "PASS"))]


def test_long_and_unprintable_values_are_cut_and_cleaned():
    assert allowed(raw("SLURM_JOB_ID=" + "9" * 10_000)) == {"SLURM_JOB_ID": "9" * MAX_VALUE_BYTES}
    assert allowed(b"SLURM_JOB_ID=a\x1b[31m\xffb\0") == {"SLURM_JOB_ID": "a?[31m?b"}


def test_torchrun_tells_everything():
    identity = identify(TORCHRUN)
    assert identity is not None
    assert (identity.job, identity.rank, identity.local_rank, identity.world_size) == ("llama", 5, 1, 8)
    assert (identity.local_world_size, identity.restarts, identity.problems) == (2, 2, ())


@pytest.mark.parametrize(
    ("variables", "job"),
    [
        ({"RANK": "0", "TORCHELASTIC_RUN_ID": "a", "SLURM_JOB_ID": "7"}, "a"),
        ({"RANK": "0", "TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "7", "MASTER_ADDR": "m"}, "7"),
        ({"RANK": "0", "JOB_COMPLETION_INDEX": "3", "MASTER_ADDR": "m"}, "pretrain"),
        ({"RANK": "0", "JOB_COMPLETION_INDEX": "4", "MASTER_ADDR": "m", "MASTER_PORT": "5"}, "m:5"),
        ({"RANK": "0", "MASTER_ADDR": "m"}, "m"),
        ({"RANK": "0"}, "given"),
    ],
)
def test_job_is_named_by_the_most_telling_source(variables, job):
    identity = identify(variables, job="given", hostname=lambda: "pretrain-3")
    assert identity is not None
    assert identity.job == job


def test_a_rank_of_no_job_is_nobody():
    assert identify({"RANK": "3"}) is None
    assert identify({"WORLD_SIZE": "3", "MASTER_ADDR": "m"}, job="given") is None


@pytest.mark.parametrize("text", ["abc", "", "-1", "1.5", "0x1", "99999999999", "٣", "1 "])
def test_a_rank_that_is_no_number_is_told_and_not_fatal(text):
    identity = identify({"RANK": text, "WORLD_SIZE": "4", "MASTER_ADDR": "m"})
    assert identity is not None
    assert identity.rank is None
    assert "RANK is" in identity.problems[0]
    assert "expected a whole number" in identity.problems[0]


def test_a_rank_beyond_the_world_is_told_and_the_world_ignored():
    identity = identify({"RANK": "4", "WORLD_SIZE": "4", "MASTER_ADDR": "m"})
    assert identity is not None
    assert (identity.rank, identity.world_size) == (4, None)
    assert len(identity.problems) == 1


def test_slurm_alone_names_a_rank_only_if_there_are_several_tasks():
    task = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}
    assert identify(task | {"SLURM_NTASKS": "1"}) is None
    identity = identify(task | {"SLURM_NTASKS": "2"})
    assert identity is not None
    assert (identity.job, identity.rank, identity.local_rank, identity.world_size) == ("7", 1, 1, 2)


def test_a_launchers_rank_is_a_weaker_sign_than_its_childrens():
    weak = identify({"SLURM_JOB_ID": "7", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"})
    strong = identify({"SLURM_JOB_ID": "7", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "RANK": "9"})
    assert weak is not None
    assert strong is not None
    assert weak.strength < strong.strength
