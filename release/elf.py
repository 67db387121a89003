"""What can be known of programs for another architecture without running them: machine, alignment, libraries.

An image for arm64 is built on whatever machine there is, and the hosts of Atlas servers may have pages of 64 KiB. So
every ELF file is read: it must be of the platform's machine, its segments aligned to the largest page, and the
libraries it names must be in the image.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from release.platforms import Platform
from release.tree import Tree

_MAGIC: Final = b"\x7fELF\x02\x01"  # 64 bit, little endian
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB = 0, 1, 5
_SHARED_OR_EXECUTABLE: Final = (2, 3)


def problems(tree: Tree, platform: Platform) -> list[str]:
    """What would not run on this platform, in sentences."""
    names = {PurePosixPath(path).name for path in tree}
    found: list[str] = []
    for path, entry in sorted(tree.items()):
        if entry.content[:6] != _MAGIC:
            continue
        kind, machine = struct.unpack_from("<HH", entry.content, 16)
        if machine != platform.machine:
            found.append(f"{path} is for machine {machine}, {platform.name} is {platform.machine}")
        elif kind in _SHARED_OR_EXECUTABLE:
            found += (f"{path}: {problem}" for problem in _problems(entry.content, platform, names))
    return found


def _problems(content: bytes, platform: Platform, names: set[str]) -> Iterator[str]:
    segments = list(_segments(content))
    aligned = [align for kind, *_, align in segments if kind == _PT_LOAD]
    if aligned and min(aligned) < platform.page_bytes:
        yield f"segments are aligned to {min(aligned)} bytes, pages may have {platform.page_bytes}"
    for library in needed(content):
        if library not in names:
            yield f"needs {library}, which is not in the image"


def needed(content: bytes) -> list[str]:
    """The libraries that a file names."""
    segments = list(_segments(content))
    dynamic = next(((offset, size) for kind, offset, _, size, _ in segments if kind == _PT_DYNAMIC), None)
    if dynamic is None:
        return []
    entries = []
    for at in range(dynamic[0], sum(dynamic), 16):
        tag, value = struct.unpack_from("<qQ", content, at)
        if tag == _DT_NULL:
            break
        entries.append((tag, value))
    strings = _offset(next(value for tag, value in entries if tag == _DT_STRTAB), segments)
    starts = [strings + value for tag, value in entries if tag == _DT_NEEDED]
    return [content[start : content.index(b"\0", start)].decode() for start in starts]


def _segments(content: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Type, offset, address, size in the file and alignment of each program header."""
    (start,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    for number in range(count):
        kind, _, offset, address, _, length, _, align = struct.unpack_from("<IIQQQQQQ", content, start + number * size)
        yield kind, offset, address, length, align


def _offset(address: int, segments: list[tuple[int, int, int, int, int]]) -> int:
    for kind, offset, start, length, _ in segments:
        if kind == _PT_LOAD and start <= address < start + length:
            return offset + address - start
    raise ValueError(f"no segment holds the address {address:#x}")
