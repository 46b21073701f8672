"""Object files: which functions they hold, where in the file those begin, and whether a probe there is cheap.

A uprobe wants the FILE offset of the first instruction. That instruction decides the cost: the kernel emulates
``push``,
``nop``, ``call`` and jumps (about 0.5 us a hit) and single-steps the rest (about 14 us). ``endbr64`` is stepped too, so
that the probe goes behind it.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import IO, Any

import numpy as np
from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile
from numpy.typing import NDArray

from eacgm.errors import ProbeError

_SYMBOL = {
    64: np.dtype(
        [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
    ),
    32: np.dtype(
        [("name", "<u4"), ("value", "<u4"), ("size", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2")]
    ),
}
_FUNCTION, _INDIRECT = 2, 10
_ENDBR64 = b"\xf3\x0f\x1e\xfa"
#: what compilers append to the name of a function's clone (``.cold`` is no function of its own)
_CLONE = re.compile(r"(?:\.(?:constprop|isra|part|lto_priv)\.\d+)+$")


@dataclass(frozen=True, slots=True)
class Function:
    """One function of an object file.

    ``offset`` is the file offset to put a probe at. ``stepped`` is empty where the instruction there can be emulated,
    else it says which bytes cannot.
    """

    name: str
    offset: int
    stepped: str = ""


@dataclass(frozen=True, slots=True)
class Marker:
    """One USDT location: file offsets of the instruction and of the semaphore (0: none)."""

    provider: str
    name: str
    offset: int
    semaphore: int


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a symbol must look like: begin with one of ``prefixes`` and match ``whole`` altogether.

    The prefixes are what makes finding fast, so they should be long. ``local`` looks for symbols that are not exported
    as well; in a large library that is not stripped those are many times more.
    """

    prefixes: tuple[bytes, ...]
    whole: re.Pattern[str]
    local: bool = False


def c_pattern(expression: str, *, local: bool = False) -> Pattern:
    """Return the pattern for C names by a regular expression, each alternative of which begins with plain characters.

    >>> c_pattern("cudaMemcpy(_ptds)?").prefixes, c_pattern("cuda?Free").prefixes
    ((b'cudaMemcpy',), (b'cud',))
    >>> c_pattern("cuMemAlloc(_v2|_v3)?|cuFree").prefixes
    (b'cuMemAlloc', b'cuFree')
    """
    literals = [re.match(r"(?:\w(?![?*{]))*", part) for part in _alternatives(expression)]
    return Pattern(tuple(found[0].encode() for found in literals if found), re.compile(expression), local)


def _alternatives(expression: str) -> list[str]:
    """Return the parts between the ``|`` that stand outside all groups."""
    depths = accumulate((character == "(") - (character == ")") for character in expression)
    ends = [at for at, (c, depth) in enumerate(zip(expression, depths, strict=True)) if c == "|" and not depth]
    return [expression[begin : end - 1] for begin, end in pairwise([0, *(at + 1 for at in ends), len(expression) + 1])]


def cpp_pattern(qualified: str) -> Pattern:
    """Return the pattern for the mangled names of a C++ function, any overload (Itanium C++ ABI 5.1).

    >>> bool(cpp_pattern("gloo::allreduce").whole.fullmatch("_ZN4gloo9allreduceERKNS_16AllreduceOptionsE"))
    True

    A part ``*`` stands for one name of any kind, which is the expression's first group.

    >>> cpp_pattern("at::_ops::*::call").whole.fullmatch("_ZN2at4_ops10add_Tensor4callERKNS_6TensorE")[1]
    'add_Tensor'
    """
    if "*" in qualified:
        before, after = (
            "".join(f"{len(part)}{part}" for part in side.split("::") if part) for side in qualified.split("*")
        )
        return Pattern((f"_ZN{before}".encode(),), re.compile(rf"_ZN{before}\d+([A-Za-z_]\w*?){after}E.*"))
    parts = [f"{len(part)}{part}" for part in qualified.split("::")]
    # the scope alone: functions of one class are then found in one go
    scope, name = "".join(parts[:-1]), "".join(parts)
    return Pattern((f"_ZN{scope}".encode(), f"_ZNK{scope}".encode()), re.compile(f"_ZNK?{re.escape(name)}E.*"))


class ObjectFile:
    """The functions and USDT notes of one ELF file.

    Raises ``ProbeError`` for a file that cannot be read or is not ELF.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        with self._open() as elf:
            self._x86_64 = elf["e_machine"] == "EM_X86_64"
            self._segments = [
                (int(s["p_vaddr"]), int(s["p_filesz"]), int(s["p_offset"]))
                for s in elf.iter_segments()
                if s["p_type"] == "PT_LOAD"
            ]
            self.markers = tuple(self._markers(elf))

    @contextmanager
    def _open(self) -> Iterator[ELFFile]:
        try:
            with open(self.path, "rb") as file:
                yield ELFFile(file)
        except OSError as error:
            raise ProbeError(f"{self.path}: cannot be read ({error.strerror}); expected a program or library") from None
        except (ELFError, ConstructError, ValueError, IndexError) as error:
            raise ProbeError(f"{self.path}: not a whole ELF file ({error}); expected a program or library") from None

    def file_offset(self, address: int) -> int | None:
        """Return where in the file a virtual address lies, None where nothing of the file is loaded there."""
        for start, size, offset in self._segments:
            if start <= address < start + size:
                return address - start + offset
        return None

    def functions(self, patterns: Sequence[Pattern]) -> list[list[Function]]:
        """Return, for each pattern, the functions whose symbol matches it, one for each address.

        Names are without versions and without the suffixes of compilers' clones. Aliases share an address and come
        once, under one of their names.
        """
        found: list[dict[int, str]] = [{} for _ in patterns]
        with self._open() as elf, mmap.mmap(elf.stream.fileno(), 0, prot=mmap.PROT_READ) as data:
            for section_name in (".dynsym", ".symtab"):
                symbols = _symbols(elf, data, section_name)
                if symbols is None:
                    continue
                wanted = [i for i, p in enumerate(patterns) if section_name == ".dynsym" or p.local]
                for prefix in sorted({prefix for i in wanted for prefix in patterns[i].prefixes}):
                    rows = [i for i in wanted if prefix in patterns[i].prefixes]
                    for address, name in symbols.beginning_with(prefix):
                        for row in rows:
                            if patterns[row].whole.fullmatch(name):
                                found[row].setdefault(address, name)
            resolved = [[self._function(elf.stream, *item) for item in row.items()] for row in found]
        return [[function for function in row if function is not None] for row in resolved]

    def _function(self, file: IO[bytes], address: int, name: str) -> Function | None:
        offset = self.file_offset(address)
        if offset is None:
            return None
        if not self._x86_64:
            return Function(name, offset)
        file.seek(offset)
        code = file.read(20)
        if code.startswith(_ENDBR64):
            offset, code = offset + 4, code[4:]
        return Function(name, offset, "" if is_emulated(code) else code[:4].hex(" "))

    def _markers(self, elf: Any) -> Iterator[Marker]:
        section = elf.get_section_by_name(".note.stapsdt")
        base = elf.get_section_by_name(".stapsdt.base")
        if section is None:
            return
        for note in section.iter_notes():
            if note["n_name"] != "stapsdt":
                continue
            data: bytes = note["n_descdata"]
            location, link_base, semaphore = (int(v) for v in np.frombuffer(data, dtype="<u8", count=3))
            moved = int(base["sh_addr"]) - link_base if base is not None else 0  # prelink moved the file
            provider, name = (part.decode() for part in data[24:].split(b"\0")[:2])
            offset = self.file_offset(location + moved)
            if offset is None:
                continue
            counter = self.file_offset(semaphore + moved) if semaphore else 0
            yield Marker(provider, name, offset, counter or 0)


class _Symbols:
    """The functions of one symbol table: ``names`` are places in ``data``, sorted, ``addresses`` go with them."""

    def __init__(self, data: mmap.mmap, strings: tuple[int, int], rows: NDArray[Any]) -> None:
        kinds = rows["info"] & 0xF
        rows = rows[((kinds == _FUNCTION) | (kinds == _INDIRECT)) & (rows["section"] != 0) & (rows["value"] != 0)]
        order = np.argsort(rows["name"], kind="stable")
        self._data = data
        self._first, self._end = strings
        self._names = rows["name"][order].astype(np.int64) + self._first
        self._addresses = rows["value"][order].astype(np.int64)

    def beginning_with(self, prefix: bytes) -> Iterator[tuple[int, str]]:
        """Yield address and name of every function whose name begins so; nothing for an empty prefix."""
        at = self._data.find(prefix, self._first, self._end) if prefix else -1
        while at >= 0:
            # the bytes may stand within a longer name: they are a symbol's only if one begins here
            first, last = np.searchsorted(self._names, [at, at + 1]).tolist()
            if first < last:
                name = _CLONE.sub("", self._data[at : self._data.find(b"\0", at)].decode("latin-1"))
                yield from ((address, name) for address in self._addresses[first:last].tolist())
            at = self._data.find(prefix, at + 1, self._end)


def _symbols(elf: ELFFile, data: mmap.mmap, section_name: str) -> _Symbols | None:
    section = elf.get_section_by_name(section_name)
    if section is None or section["sh_type"] == "SHT_NOBITS":
        return None
    strings = elf.get_section(section["sh_link"])
    first = int(strings["sh_offset"])
    start = int(section["sh_offset"])
    rows = np.frombuffer(data[start : start + int(section["sh_size"])], dtype=_SYMBOL[elf.elfclass])
    return _Symbols(data, (first, first + int(strings["sh_size"])), rows)


def is_emulated(code: bytes) -> bool:
    """Tell whether the kernel emulates the first x86-64 instruction of ``code`` (arch/x86/kernel/uprobes.c).

    >>> is_emulated(bytes.fromhex("55")), is_emulated(bytes.fromhex("4157")), is_emulated(bytes.fromhex("4883ec08"))
    (True, True, False)
    """
    first = code[0]
    if 0x50 <= first <= 0x57 or first in (0x90, 0xE8, 0xE9, 0xEB) or 0x70 <= first <= 0x7F:
        return True
    if first == 0x41:
        return 0x50 <= code[1] <= 0x57
    return first == 0x0F and (code[1] == 0x1F or 0x80 <= code[1] <= 0x8F)
