"""Stand-ins for NVIDIA's libraries, built under the real names: see the C files."""

from __future__ import annotations

import subprocess
from pathlib import Path

#: not optimised, every function begins with push, as nearly all of NVIDIA's do
_FLAGS = ("-O0",)


def build(name: str, target: Path, *others: Path) -> Path:
    """Compile ``name``.c to the library ``target``, linked against other libraries in the same folder."""
    source = Path(__file__).with_name(f"{name}.c")
    command = ["gcc", *_FLAGS, "-shared", "-fPIC", f"-Wl,-soname,{target.name}", "-Wl,-rpath,$ORIGIN"]
    subprocess.run([*command, "-o", target, source, *others], check=True)
    return target
