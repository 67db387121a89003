"""The files of an image, in memory, and the tar archives they become: the same files give the same bytes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from posixpath import join, normpath


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, or with `link` a symbolic link. Everything belongs to root and can be read by everybody."""

    content: bytes = b""
    executable: bool = False
    link: str = ""

    @property
    def mode(self) -> int:
        """Permissions."""
        return 0o777 if self.link else 0o755 if self.executable else 0o644


Tree = Mapping[str, Entry]
"""Entries by path, relative to the root, with slashes."""


def without_links(tree: Tree) -> dict[str, Entry]:
    """The same for an archive that may hold no links: each becomes the file that it leads to.

    That file's own name goes, since programs ask for the link's (`libz.so.1`); of a module both are asked for. A link
    to a directory, or out of the tree, is left out.
    """
    files = {path: entry for path, entry in tree.items() if not entry.link}
    led = {path: _end(tree, path) for path, entry in tree.items() if entry.link}
    kept = {path: entry for path, entry in files.items() if path.endswith(".py") or path not in led.values()}
    return kept | {path: files[end] for path, end in led.items() if end in files}


def _end(tree: Tree, path: str) -> str:
    """Where a chain of links ends. ValueError: it never does."""
    passed: set[str] = set()
    while (entry := tree.get(path)) and entry.link:
        if path in passed:
            raise ValueError(f"the link {path} leads to itself")
        passed.add(path)
        path = normpath(join("/", path, "..", entry.link)).lstrip("/")
    return path


def from_tar(archive: tarfile.TarFile) -> dict[str, Entry]:
    """The files and links of a tar archive; directories follow from them. ValueError: a path leads outside."""
    found: dict[str, Entry] = {}
    for member in archive:
        path = PurePosixPath(member.name)
        if ".." in path.parts:
            raise ValueError(f"{member.name} leads out of the archive")
        name = str(path).removeprefix("/")
        if member.issym():
            found[name] = Entry(link=member.linkname)
        elif member.islnk():
            found[name] = found[str(PurePosixPath(member.linkname))]
        elif (file := archive.extractfile(member)) is not None:
            found[name] = Entry(file.read(), executable=bool(member.mode & 0o111))
    return found


def to_tar(tree: Tree, directories: Mapping[str, int] | None = None) -> bytes:
    """One layer, uncompressed: sorted, of root, of the epoch's first second.

    Args:
        tree: the files.
        directories: permissions of further directories, or of those that are not 0755.
    """
    special = dict(directories or {})
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted({*tree, *_parents(tree), *special}):
            archive.addfile(*_member(path, tree.get(path), special.get(path, 0o755)))
    return content.getvalue()


def _member(path: str, entry: Entry | None, mode: int) -> tuple[tarfile.TarInfo, io.BytesIO | None]:
    info = tarfile.TarInfo(path)
    if entry is None:
        info.type, info.mode = tarfile.DIRTYPE, mode
        return info, None
    info.mode = entry.mode
    if entry.link:
        info.type, info.linkname = tarfile.SYMTYPE, entry.link
        return info, None
    info.size = len(entry.content)
    return info, io.BytesIO(entry.content)


def _parents(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        yield from (str(parent) for parent in PurePosixPath(path).parents if parent.parts)


def write_below(root: Path, tree: Tree, directories: Mapping[str, int] | None = None) -> None:
    """Write everything into a directory, for a builder that takes one; directories as for `to_tar`."""
    for path, entry in tree.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if entry.link:
            target.symlink_to(entry.link)
        else:
            target.write_bytes(entry.content)
            target.chmod(entry.mode)
    for path, mode in (directories or {}).items():
        (root / path).mkdir(parents=True, exist_ok=True)
        (root / path).chmod(mode)
