import subprocess

import pytest

from eacgm.errors import ProbeError
from eacgm.producers.elf import ObjectFile, c_pattern, cpp_pattern, is_emulated

_SOURCE = """
#include <stddef.h>
namespace ring { namespace inner {
struct Group { int reduce(int); int reduce(double) const; static int reduce_all(int); };
int Group::reduce(int n) { return n; }
int Group::reduce(double n) const { return (int)n + 1; }
int Group::reduce_all(int n) { return n + 2; }
}}
extern "C" {
int plain(int n) { return n * 3; }
int plain_alias(int) __attribute__((alias("plain")));
static __attribute__((noinline)) int hidden(int n) { return n * 5; }
int caller(int n) { return hidden(n) + 1; }
__asm__(".globl lean\\n.type lean,@function\\nlean:\\n xor %eax,%eax\\n ret\\n.size lean,.-lean\\n");
__asm__(".globl clone.constprop.0\\n.type clone.constprop.0,@function\\nclone.constprop.0:\\n push %rbp\\n ret");
__asm__(".globl clone.cold\\n.type clone.cold,@function\\nclone.cold:\\n push %rbp\\n ret");
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elf")
    (folder / "known.cc").write_text(_SOURCE)
    flags = ["-O1", "-fno-omit-frame-pointer", "-fcf-protection=branch", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, "-o", folder / "known.so", folder / "known.cc"], check=True)
    return folder / "known.so"


def one(library, pattern):
    (functions,) = ObjectFile(str(library)).functions([c_pattern(pattern) if isinstance(pattern, str) else pattern])
    return functions


def test_a_function_is_found_at_its_file_offset_behind_endbr64(library):
    (function,) = one(library, "caller")
    code = library.read_bytes()
    assert code[function.offset - 4 : function.offset].hex() == "f30f1efa"
    assert code[function.offset] == 0x55  # push %rbp
    assert function.stepped == ""


def test_aliases_of_one_address_come_once(library):
    assert len(one(library, "plain(_alias)?")) == 1


def test_a_static_function_is_found_in_the_symbol_table_and_not_in_a_stripped_file(library, tmp_path):
    assert one(library, "hidden") == []
    assert len(one(library, c_pattern("hidden", local=True))) == 1
    stripped = tmp_path / "stripped.so"
    subprocess.run(["strip", "-o", stripped, library], check=True)
    assert one(stripped, c_pattern("hidden", local=True)) == []
    assert one(stripped, "plain") == one(library, "plain")


def test_all_overloads_of_a_cpp_name_are_found_and_no_longer_names(library):
    names = [function.name for function in one(library, cpp_pattern("ring::inner::Group::reduce"))]
    assert sorted(names) == ["_ZN4ring5inner5Group6reduceEi", "_ZNK4ring5inner5Group6reduceEd"]


def test_each_pattern_gets_its_own_functions_in_one_reading(library):
    found = ObjectFile(str(library)).functions([c_pattern(text) for text in ("plain", "absent", "ca.*", "plain")])
    assert [[function.name for function in row] for row in found] == [["plain"], [], ["caller"], ["plain"]]


def test_a_name_that_is_the_end_of_a_longer_one_is_found_once(library, tmp_path):
    # linkers store `Start` within `pStart`, as in libnccl (ncclAllReduce, pncclAllReduce)
    source = "int Start(int n) { return n; } int pStart(int n) { return n + 1; } int Starter(int n) { return n + 2; }"
    merged = tmp_path / "merged.so"
    command = ["gcc", "-O1", "-shared", "-fPIC", "-Wl,-O2", "-x", "c", "-o", merged, "-"]
    subprocess.run(command, input=source, text=True, check=True)
    assert [function.name for function in one(merged, "Start")] == ["Start"]
    assert [function.name for function in one(merged, "pStart")] == ["pStart"]


def test_a_first_instruction_that_must_be_stepped_is_told(library):
    (function,) = one(library, "lean")
    assert function.stepped.startswith("31 c0")


def test_a_compilers_clone_goes_by_the_functions_name_and_cold_parts_do_not(library):
    assert len(one(library, "clone")) == 1


@pytest.mark.parametrize(
    ("code", "emulated"),
    [
        ("55", True),  # push %rbp
        ("4155", True),  # push %r13
        ("90", True),  # nop
        ("0f1f4000", True),  # nopl
        ("e800000000", True),  # call
        ("eb05", True),  # jmp
        ("4883ec08", False),  # sub $8,%rsp
        ("31c0", False),  # xor
        ("f30f1efa", False),  # endbr64
        ("4889f8", False),  # mov
    ],
)
def test_instructions_that_the_kernel_emulates(code, emulated):
    assert is_emulated(bytes.fromhex(code)) is emulated


def test_a_cpp_name_without_arguments_of_another_class_does_not_match():
    whole = cpp_pattern("c10d::Work::wait").whole
    assert not whole.fullmatch("_ZN4c10d8WorkInfo4waitEv")
    assert whole.fullmatch("_ZN4c10d4Work4waitENSt6chrono8durationE")


def test_what_is_no_elf_file_is_refused_in_one_line(tmp_path):
    text = tmp_path / "text.so"
    text.write_text("not a library")
    with pytest.raises(ProbeError, match="not a whole ELF file"):
        ObjectFile(str(text))
    with pytest.raises(ProbeError, match="No such file"):
        ObjectFile(str(tmp_path / "absent.so"))


def test_a_truncated_library_is_refused_in_one_line(library, tmp_path):
    whole = library.read_bytes()
    for length in (10, 70, len(whole) // 3, len(whole) - 200):
        cut = tmp_path / "cut.so"
        cut.write_bytes(whole[:length])
        with pytest.raises(ProbeError) as caught:
            ObjectFile(str(cut)).functions([c_pattern("plain")])
        assert "\n" not in str(caught.value)
