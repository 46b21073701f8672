import subprocess
import sys

import pytest

from eacgm.errors import UnsupportedError
from eacgm.producers import programs, toolchain


def test_a_missing_bcc_is_told_with_the_package_that_holds_it(monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain, "DEBIAN_BCC", tmp_path / "bcc")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "bcc", raising=False)
    with pytest.raises(UnsupportedError, match=r"apt-get install .* python3-bpfcc"):
        toolchain.find_bcc()
    with pytest.raises(UnsupportedError, match=r"apt-get install .* python3-bpfcc"):
        toolchain.import_bcc()


def test_another_package_called_bcc_is_told_apart(monkeypatch, tmp_path):
    (tmp_path / "bcc.py").write_text("raise ImportError('lattice')")
    monkeypatch.setattr(toolchain, "DEBIAN_BCC", tmp_path / "absent")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "bcc", raising=False)
    with pytest.raises(UnsupportedError, match="is not BCC"):
        toolchain.import_bcc()


def test_tracefs_that_is_not_mounted_is_told_with_the_command_that_mounts_it(monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain, "TRACEFS", (tmp_path,))
    with pytest.raises(UnsupportedError, match="mount -t tracefs"):
        toolchain.tracefs()


def test_what_this_kernel_s_tracepoints_lack_is_not_compiled_in(tmp_path):
    (tmp_path / "sched/sched_process_exit").mkdir(parents=True)
    (tmp_path / "sched/sched_process_exit/format").write_text("field:pid_t pid;")
    (tmp_path / "sock/sock_send_length").mkdir(parents=True)
    assert toolchain.definitions(tmp_path) == ["HAVE_SOCK_SEND_LENGTH"]
    (tmp_path / "sched/sched_process_exit/format").write_text("field:bool group_dead;")
    assert toolchain.definitions(tmp_path) == ["HAVE_SOCK_SEND_LENGTH", "HAVE_GROUP_DEAD"]


def test_missing_capabilities_are_named():
    code = (
        "from eacgm.producers.programs import check_privileges\n"
        "from eacgm.errors import UnsupportedError\n"
        "try:\n    check_privileges()\nexcept UnsupportedError as error:\n    print(error)"
    )
    drop = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--reuid", "65534", "--clear-groups"]
    done = subprocess.run([*drop, sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"privileges cannot be dropped here: {done.stderr.strip()[-120:]}")
    assert done.stdout.strip() == "CAP_BPF and CAP_PERFMON missing; run as root, or grant them to the agent"


def test_the_kernel_s_version_is_two_numbers():
    major, minor = programs.kernel_release()
    assert major >= 3
    assert minor >= 0


def test_every_source_has_a_comment_that_says_what_it_measures_and_costs():
    for name in toolchain.SOURCES:
        text = toolchain.program_text([name])
        header = text[text.index("/*") : text.index("*/")]
        assert len(header.splitlines()) > 5, name
        if name.endswith(".c"):
            assert "Cost:" in header, name
            assert "Caveats:" in header, name
