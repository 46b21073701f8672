"""Throttled time and containers, both cgroup versions."""

import shutil
from pathlib import Path

import pytest

from eacgm.producers.cgroups import ThrottleReader, container_of, cpu_mounts, memberships
from eacgm.producers.procfs import read_file

FIXTURES = Path(__file__).parent / "fixtures"
BURSTABLE = "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice"
POD = f"{BURSTABLE}/kubepods-burstable-pod1f2e3d4c_0000_4000_8000_aabbccddeeff.slice"


@pytest.fixture
def node(tmp_path):
    def copy(name: str) -> Path:
        return Path(shutil.copytree(FIXTURES / name, tmp_path / name, symlinks=True))

    return copy


def groups(root, pid):
    return memberships(read_file(f"{root}/proc/{pid}/cgroup"))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_mounts_of_both_versions_are_found():
    v1 = cpu_mounts(read_file(str(FIXTURES / "node_v1/proc/self/mountinfo")))
    assert [(mount.folder, mount.version) for mount in v1] == [
        ("/sys/fs/cgroup/unified", 2),
        ("/sys/fs/cgroup/cpu,cpuacct", 1),
    ]
    assert cpu_mounts(b"nonsense\n1 2 - cgroup2\n\n") == []
    assert cpu_mounts(None) == []


def test_v2_sums_the_group_and_the_limiting_ones_around_it(node):
    root = node("node_v2")
    reader = ThrottleReader(str(root))
    assert reader.seconds(groups(root, 110)) is None, "the first interval has nothing to compare with"
    scope = next((root / POD).glob("cri-containerd-*"))
    write(scope / "cpu.stat", "nr_throttled 31\nthrottled_usec 3000000\n")
    write(root / POD / "cpu.stat", "nr_throttled 2\nthrottled_usec 150000\n")
    reader.advance()
    assert reader.seconds(groups(root, 110)) == pytest.approx(0.55)
    assert reader.seconds(groups(root, 111)) == pytest.approx(0.55)
    reader.advance()
    assert reader.seconds(groups(root, 110)) == 0.0


def test_v1_counts_nanoseconds(node):
    root = node("node_v1")
    reader = ThrottleReader(str(root))
    reader.seconds(groups(root, 202))
    write(root / "sys/fs/cgroup/cpu,cpuacct/lab/slow/cpu.stat", "throttled_time 3750000000\n")
    reader.advance()
    assert reader.seconds(groups(root, 202)) == pytest.approx(0.75)


def test_without_a_quota_nothing_is_throttled(node):
    root = node("node_v1")
    assert ThrottleReader(str(root)).seconds(groups(root, 201)) == 0.0
    assert ThrottleReader(str(root)).seconds({"cpu": "/"}) == 0.0


def test_a_quota_that_is_lifted_still_counts_for_its_last_interval(node):
    root = node("node_v1")
    group = root / "sys/fs/cgroup/cpu,cpuacct/lab/slow"
    reader = ThrottleReader(str(root))
    reader.seconds(groups(root, 202))
    write(group / "cpu.cfs_quota_us", "-1\n")
    write(group / "cpu.stat", "throttled_time 3200000000\n")
    reader.advance()
    assert reader.seconds(groups(root, 202)) == pytest.approx(0.2)


def test_a_process_that_is_moved_into_a_group_with_a_quota_counts_from_the_second_interval(node):
    root = node("node_v1")
    reader = ThrottleReader(str(root))
    assert reader.seconds({"cpu": "/lab"}) == 0.0
    reader.advance()
    assert reader.seconds({"cpu": "/lab/slow"}) is None
    reader.advance()
    assert reader.seconds({"cpu": "/lab/slow"}) == 0.0


def test_groups_that_the_mount_does_not_show_are_unknown(tmp_path):
    write(tmp_path / "proc/self/mountinfo", "30 24 0:26 /pod /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    write(tmp_path / "sys/fs/cgroup/a/cpu.max", "1000 100000\n")
    write(tmp_path / "sys/fs/cgroup/a/cpu.stat", "throttled_usec 5\n")
    reader = ThrottleReader(str(tmp_path))
    assert reader.seconds({"": "/other/a"}) is None
    assert reader.seconds({"": "/../a"}) is None
    assert reader.seconds({}) is None
    reader.seconds({"": "/pod/a"})
    reader.advance()
    assert reader.seconds({"": "/pod/a"}) == 0.0


def test_a_group_that_is_gone_is_not_an_error(node):
    root = node("node_v2")
    reader = ThrottleReader(str(root))
    reader.seconds(groups(root, 110))
    shutil.rmtree(root / "sys/fs/cgroup/kubepods.slice")
    reader.advance()
    assert reader.seconds(groups(root, 110)) is None or reader.seconds(groups(root, 110)) == 0.0


ID = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("path", "container"),
    [
        (f"/docker/{ID}", ID),
        (f"/system.slice/docker-{ID}.scope", ID),
        (f"/machine.slice/libpod-{ID}.scope/container", ID),
        (f"/kubepods/besteffort/pod1-2/{ID}", ID),
        (f"/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:{ID}", ID),
        (f"/docker/{'f' * 64}/docker/{ID}", ID),
        ("/user.slice/session-3.scope", None),
        (f"/docker/{ID[:32]}", None),
        ("/", None),
    ],
)
def test_container_ids_are_found_in_the_paths_of_all_runtimes(path, container):
    assert container_of({"": path}) == container
