"""Finding a Python with torch: every candidate is a real program that prints a version or fails."""

import sys

import pytest

from eacgm.demo.interpreters import candidates, find
from eacgm.errors import UnsupportedError


def python_with(tmp_path, name: str, version: str | None):
    """Return a program that runs this Python with a package ``torch`` of that version, or with none."""
    packages = tmp_path / f"{name}-packages"
    packages.mkdir()
    if version is not None:
        (packages / "torch").mkdir()
        (packages / "torch" / "__init__.py").write_text("from torch.version import __version__\n")
        (packages / "torch" / "version.py").write_text(f'__version__ = "{version}"\n')
        (packages / "torch" / "distributed.py").write_text("def is_available():\n    return True\n")
    program = tmp_path / name
    program.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("version", ["1.13.0a0", "2.9.1+cpu"])
def test_new_enough_torch_is_found(tmp_path, version, quick):
    path = python_with(tmp_path, "python", version)
    found = find(path, quick=quick)
    assert (found.path, found.torch_version) == (path, version)


@pytest.mark.parametrize("version", ["1.12.1", None])
def test_old_or_missing_torch_is_told_with_what_was_looked_at(tmp_path, version):
    path = python_with(tmp_path, "python", version)
    with pytest.raises(UnsupportedError, match=r"no Python with torch >= 1\.13") as told:
        find(path)
    assert path in str(told.value)
    assert "\n" not in str(told.value)


def test_a_program_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UnsupportedError, match="no-such-python"):
        find(str(tmp_path / "no-such-python"))


def test_the_environment_names_the_only_candidate(monkeypatch):
    monkeypatch.setenv("EACGM_DEMO_PYTHON", "/opt/python")
    assert list(candidates()) == ["/opt/python"]
    assert list(candidates("/mine")) == ["/mine"]
