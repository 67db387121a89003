import struct
from pathlib import Path

import pytest

from release import elf
from release.platforms import PLATFORMS, Platform
from release.tree import Entry

AMD64, ARM64 = PLATFORMS["linux/amd64"], PLATFORMS["linux/arm64"]
STRINGS = b"\0libc.so.6\0libm.so.6\0"


def library(machine: int, align: int, needed: tuple[int, ...] = (1, 11)) -> bytes:
    """A shared library with one segment that holds everything, and a dynamic section."""
    headers = 64 + 2 * 56
    dynamic = b"".join(struct.pack("<qQ", tag, value) for tag, value in [(1, at) for at in needed])
    strings = headers + len(dynamic) + 32
    dynamic += struct.pack("<qQ", 5, 0x10000 + strings) + struct.pack("<qQ", 0, 0)
    size = strings + len(STRINGS)
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0x10000, 0x10000, size, size, align)
    section = struct.pack("<IIQQQQQQ", 2, 4, headers, 0x10000 + headers, 0, len(dynamic), len(dynamic), 8)
    return header + load + section + dynamic + STRINGS


def with_libraries(content: bytes) -> dict[str, Entry]:
    return {"lib/x.so": Entry(content), "lib/libc.so.6": Entry(), "lib/libm.so.6": Entry(link="libm-2.so")}


@pytest.mark.parametrize(("platform", "machine"), [(AMD64, 62), (ARM64, 183)])
def test_a_file_of_the_platform_with_its_libraries_is_fine(platform: Platform, machine: int) -> None:
    assert elf.problems(with_libraries(library(machine, 65536)), platform) == []


def test_a_file_for_another_machine_is_named() -> None:
    (problem,) = elf.problems(with_libraries(library(62, 65536)), ARM64)
    assert problem == "lib/x.so is for machine 62, linux/arm64 is 183"


def test_segments_for_small_pages_do_not_fit_arm64() -> None:
    (problem,) = elf.problems(with_libraries(library(183, 4096)), ARM64)
    assert "pages may have 65536" in problem
    assert elf.problems(with_libraries(library(62, 4096)), AMD64) == []


def test_a_library_that_is_not_there_is_named() -> None:
    tree = {path: entry for path, entry in with_libraries(library(62, 4096)).items() if "libm" not in path}
    assert elf.problems(tree, AMD64) == ["lib/x.so: needs libm.so.6, which is not in the image"]


def test_a_real_library_tells_what_it_needs() -> None:
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line}
    path = next(each for each in loaded if "libm.so" in each or "libm-" in each)
    assert "libc.so.6" in elf.needed(Path(path).read_bytes())


def test_other_files_are_left_alone() -> None:
    assert elf.problems({"a.py": Entry(b"print()"), "empty": Entry()}, ARM64) == []
