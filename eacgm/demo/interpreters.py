"""Pythons that can run the demo's job: those with torch >= 1.13 and gloo.

``python -m eacgm.demo.interpreters`` prints the first one and exits 0, or says what was looked at and exits 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eacgm.errors import UnsupportedError

OLDEST = (1, 13)
#: a build of torch for GPUs is gigabytes: from a cold disk its import takes this long at most
IMPORT_SECONDS = 180

# Importing torch takes seconds and says most; the version file alone is read when nothing else is asked.
_QUICK = """
import importlib.util, os, re
spec = importlib.util.find_spec("torch")
path = os.path.join(os.path.dirname(spec.origin), "version.py") if spec and spec.origin else os.devnull
found = re.search(r"__version__\\s*=\\s*['\\"]([^'\\"]+)", open(path).read())
print(found.group(1) if found else "")
"""
_FULL = """
import torch, torch.distributed as dist
gloo = dist.is_available() and (not hasattr(dist, "is_gloo_available") or dist.is_gloo_available())
print(torch.__version__ if gloo else "")
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python and the version of its torch."""

    path: str
    torch_version: str


def candidates(chosen: str | None = None) -> Iterator[str]:
    """Yield the Pythons to look at, without repeats: the chosen one alone, else the usual places."""
    named = chosen or os.environ.get("EACGM_DEMO_PYTHON")
    if named:
        yield named
        return
    seen = set()
    for path in ("/usr/bin/python3", shutil.which("python3"), sys.executable):
        if path and Path(path).exists() and path not in seen:
            seen.add(path)
            yield path


def find(chosen: str | None = None, *, quick: bool = False) -> Interpreter:
    """Return the first Python with a torch that is new enough; ``quick`` does not import it.

    Raises ``UnsupportedError`` if there is none.
    """
    looked_at = []
    for path in candidates(chosen):
        version = _torch_version(path, _QUICK if quick else _FULL)
        if _numbers(version) >= OLDEST:
            return Interpreter(path, version)
        looked_at.append(f"{path} ({'torch ' + version if version else 'no torch'})")
    raise UnsupportedError(
        f"no Python with torch >= {OLDEST[0]}.{OLDEST[1]}: looked at {', '.join(looked_at)}; "
        "install python3-torch (apt) or name one with --python or EACGM_DEMO_PYTHON"
    )


def _torch_version(path: str, program: str) -> str:
    try:
        done = subprocess.run(
            [path, "-c", program], capture_output=True, text=True, timeout=IMPORT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().splitlines()[-1] if done.returncode == 0 and done.stdout.strip() else ""


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version's first two numbers.

    >>> _numbers("2.4.0+cpu"), _numbers("1.13.0a0"), _numbers("")
    ((2, 4), (1, 13), ())
    """
    parts = version.split(".")[:2]
    return tuple(int(part) for part in parts if part.isdecimal())


if __name__ == "__main__":
    try:
        print(find(quick=True).path)
    except UnsupportedError as error:
        sys.exit(str(error))
