"""What of Hajob depends on the processor is little, known, and right on aarch64, which cannot be run everywhere.

docs/admin/install.md ("Both architectures") lists it; whatever is added must be added there, too.
"""

from __future__ import annotations

import ast
import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.bootstrap.paths import CHECKOUT
from trainer_sidecar import prctl

ROOMS = ("operator/hajob", "trainer_sidecar")
NATIVE_STRUCT = "3i"
"""`struct ucred` of SO_PEERCRED: three 32-bit numbers in the machine's order, on every architecture."""
PAGE = re.compile(r"SC_PAGE_?SIZE|getpagesize|\bmmap\b")


def sources() -> Iterator[tuple[str, str]]:
    """Path and text of every module of the product that people write."""
    for room in ROOMS:
        for path in sorted((CHECKOUT / room).rglob("*.py")):
            if "_pb2" not in path.name:
                yield str(path.relative_to(CHECKOUT)), path.read_text(encoding="utf-8")


def test_two_modules_call_c_and_the_page_names_them() -> None:
    found = [path for path, text in sources() if re.search(r"^\s*import ctypes|^\s*from ctypes", text, re.MULTILINE)]
    assert found == ["operator/hajob/app/memory_tuning.py", "trainer_sidecar/prctl.py"]
    page = (CHECKOUT / "docs/admin/install.md").read_text(encoding="utf-8")
    assert all(Path(path).name in page for path in found)


def test_prctls_numbers_are_linuxs_own() -> None:
    """Of the headers that all architectures share."""
    header = Path("/usr/include/linux/prctl.h")
    if not header.exists():
        pytest.skip("there are no kernel headers on this machine")
    told = dict(re.findall(r"^#define\s+(PR_\w+)\s+(\d+)", header.read_text(), re.MULTILINE))
    mine = {name: value for name, value in vars(prctl).items() if name.startswith("PR_")}
    assert {name: int(told[name]) for name in mine} == mine


def test_prctl_is_given_whole_registers() -> None:
    """It reads `unsigned long`; an `int` leaves half of a register to chance."""
    assert prctl.PRCTL is not None
    assert list(prctl.PRCTL.argtypes) == [ctypes.c_int] + [ctypes.c_ulong] * 4  # type: ignore[attr-defined]


def formats(text: str) -> Iterator[str]:
    """Constant formats that are given to `struct`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("struct."):
            first = node.args[0]
            yield str(first.value) if isinstance(first, ast.Constant) else ast.unparse(first)


def test_bytes_on_a_wire_have_an_order_of_their_own() -> None:
    found = {each for _, text in sources() for each in formats(text)}
    assert {each for each in found if each[:1] not in {"<", ">", "!"}} <= {NATIVE_STRUCT}


def test_nothing_depends_on_the_size_of_a_page() -> None:
    """4 KiB here, 64 KiB on many Kunpeng hosts; what is linked is read in test_elf.py."""
    assert [path for path, text in sources() if PAGE.search(text)] == []
