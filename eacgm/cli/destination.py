"""A new recording's folder: filled beside its place and moved there once complete, so that nothing is overwritten."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eacgm.errors import InputError


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``out`` when the block ends well, and vanishes when it does not.

    Raises ``InputError`` if ``out`` holds anything or cannot be made.
    """
    place = out.absolute()
    try:
        _refuse_occupied(out)
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{place.name}-", suffix=".partial", dir=place.parent))
    except OSError as error:
        raise InputError(f"cannot be made ({error.strerror}); expected a place to write to", path=str(out)) from None
    try:
        yield partial
        partial.chmod(0o777 & ~_umask())
        try:
            os.rename(partial, place)
        except OSError as error:
            raise InputError(f"cannot be filled ({error.strerror}); choose another --out", path=str(out)) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _refuse_occupied(out: Path) -> None:
    if out.is_dir() and not any(out.iterdir()):
        return
    if out.exists() or out.is_symlink():
        kind = "is not empty" if out.is_dir() else "is not a folder"
        raise InputError(f"{kind}; nothing is overwritten: choose a new --out", path=str(out))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
