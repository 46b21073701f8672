"""The wheel and the sdist: built for real, and holding what an installation needs."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = """
import sys
from setuptools import build_meta
print(getattr(build_meta, "build_" + sys.argv[1])(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of what the repository tracks, or would, so that building writes nothing into the tree."""
    copy = tmp_path_factory.mktemp("tree")
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if not (ROOT / name).exists():
            continue
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            target.symlink_to((ROOT / name).readlink())
        else:
            target.write_bytes((ROOT / name).read_bytes())
    return copy


def build(kind: str, tree: Path, out: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", BUILD, kind, str(out)], cwd=tree, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return out / done.stdout.strip().splitlines()[-1]


def needed(tree: Path) -> set[str]:
    """Return every file that must be in a wheel, by its name there."""
    names = set()
    for folder, inside in (
        ("eacgm", "eacgm"),
        ("producers", "eacgm/producers"),
        ("streams", "eacgm/streams"),
        ("bpf", "eacgm/bpf"),
        ("schemas", "eacgm/schemas"),
    ):
        for path in (tree / folder).rglob("*"):
            relative = path.relative_to(tree / folder)
            if path.is_file() and path.suffix in {".py", ".c", ".h", ".avsc", ".avro", ".typed", ".json"}:
                names.add(f"{inside}/{relative}")
    return names


def test_wheel_holds_everything_under_one_package(tree, tmp_path):
    with zipfile.ZipFile(build("wheel", tree, tmp_path)) as wheel:
        names = set(wheel.namelist())
    missing = needed(tree) - names
    assert not missing
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"eacgm"}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {"eacgm/schemas/alerts.avsc", "eacgm/streams/catalogue.py", "eacgm/py.typed"} <= names


def test_sdist_builds_the_same_wheel(tree, tmp_path):
    sdist = build("sdist", tree, tmp_path)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    unpacked = next((tmp_path / "unpacked").iterdir())
    from_sdist, from_tree = tmp_path / "from-sdist", tmp_path / "from-tree"
    for folder in (from_sdist, from_tree):
        folder.mkdir()
    wheels = []
    for source, out in ((unpacked, from_sdist), (tree, from_tree)):
        with zipfile.ZipFile(build("wheel", source, out)) as wheel:
            wheels.append(set(wheel.namelist()))
    assert wheels[0] == wheels[1]


def test_installed_wheel_runs(tree, tmp_path):
    wheel = build("wheel", tree, tmp_path)
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    program = "import eacgm.schemas, eacgm.streams.catalogue as c; print(len(eacgm.schemas.schemas()), c.__file__)"
    # -S: the editable installation of this tree must not answer instead
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {[str(site), *site_packages()]!r}; {program}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    count, path = done.stdout.split()
    assert int(count) == 9
    assert path.startswith(str(site))


def site_packages() -> list[str]:
    return [path for path in sys.path if path.endswith("site-packages")]
