"""The layout: four links in eacgm/ show what package-dir maps, and every package is listed."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]


def test_links_equal_the_package_mapping():
    links = {
        path.name: str(path.resolve().relative_to(ROOT)) for path in (ROOT / "eacgm").iterdir() if path.is_symlink()
    }
    mapped = {
        name.removeprefix("eacgm."): folder
        for name, folder in SETUPTOOLS["package-dir"].items()
        if name.count(".") == 1 and not folder.startswith("eacgm")
    }
    assert links == mapped
    assert set(links) == {"producers", "streams", "bpf", "schemas"}
    for name in links:
        assert (ROOT / "eacgm" / name).readlink() == Path("..") / links[name]


def folders_with_modules(top: Path, name: str) -> set[str]:
    """Return the packages in a folder and below it, by their dotted names."""
    found = set()
    for path in [top, *top.rglob("*")]:
        if path.is_dir() and not path.is_symlink() and any(path.glob("*.py")):
            found.add(".".join([name, *path.relative_to(top).parts]))
    return found


def test_every_package_is_listed():
    found = {name for name in folders_with_modules(ROOT / "eacgm", "eacgm") if ".data" not in name}
    for name in ("producers", "streams", "bpf", "schemas"):
        found |= folders_with_modules(ROOT / name, f"eacgm.{name}")
    assert set(SETUPTOOLS["packages"]) == found


def folder_of(package: str) -> Path:
    """Return a package's folder: by its own entry in package-dir, or inside its parent's."""
    mapped = SETUPTOOLS["package-dir"].get(package)
    if mapped is not None:
        return ROOT / mapped
    parent, _, name = package.rpartition(".")
    return folder_of(parent) / name


def test_every_package_has_an_init():
    for package in SETUPTOOLS["packages"]:
        assert (folder_of(package) / "__init__.py").is_file(), package


def test_lock_pins_every_dependency_with_hashes_and_names_no_host():
    text = (ROOT / "requirements.lock").read_text()
    pinned = set(re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE))
    wanted = [
        *PROJECT["project"]["dependencies"],
        *PROJECT["dependency-groups"]["dev"],
        *PROJECT["build-system"]["requires"],
    ]
    names = {re.split(r"[<>=\[;! ]", line)[0].lower().replace("_", "-") for line in wanted}
    assert names <= pinned
    blocks = re.split(r"\n(?=[a-z0-9-]+==)", text)[1:]
    assert len(blocks) == len(re.findall(r"^[a-z0-9-]+==", text, re.MULTILINE))
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in text
    assert "--index-url" not in text


def test_bcc_is_no_dependency():
    # The package of that name on PyPI is an unrelated one.
    assert not re.search(r"^bcc\b", (ROOT / "requirements.lock").read_text(), re.MULTILINE)


def imported(path: Path) -> set[str]:
    """Return the top-level names of the modules that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


def normalised(name: str) -> str:
    """Return a distribution's name as packaging tools compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_whatever_is_imported_is_declared():
    wanted = PROJECT["project"]["dependencies"]
    declared = {normalised(re.match(r"[\w.-]+", one)[0]) for one in wanted}
    files = [path for package in SETUPTOOLS["packages"] for path in folder_of(package).glob("*.py")]
    # the demo's job runs in another Python, and BCC comes from the distribution (docs/decisions/0002)
    names = set().union(*[imported(path) for path in files if path.name != "job.py"]) - {"eacgm", "bcc"}
    distributions = packages_distributions()
    for name in sorted(names - sys.stdlib_module_names):
        assert declared & {normalised(one) for one in distributions.get(name, [name])}, name
