import io
import tarfile
from pathlib import Path

import pytest

from release.tree import Entry, from_tar, to_tar, without_links, write_below

TREE = {
    "usr/bin/tool": Entry(b"#!/bin/true", executable=True),
    "usr/bin/link": Entry(link="tool"),
    "etc/config": Entry(b"a=1\n"),
}


def read(content: bytes) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(content))


def test_the_same_files_in_another_order_give_the_same_bytes() -> None:
    assert to_tar(TREE) == to_tar(dict(reversed(TREE.items())))


def test_a_layer_is_of_root_and_of_no_time() -> None:
    for member in read(to_tar(TREE, {"tmp": 0o1777})):
        assert (member.uid, member.gid, member.mtime) == (0, 0, 0)


def test_directories_stand_before_what_is_in_them() -> None:
    names = read(to_tar(TREE)).getnames()
    assert names.index("usr") < names.index("usr/bin") < names.index("usr/bin/tool")


def test_everybody_may_read_and_run_what_is_packed() -> None:
    modes = {member.name: member.mode for member in read(to_tar(TREE, {"tmp": 0o1777}))}
    assert (modes["usr/bin/tool"], modes["etc/config"], modes["usr"], modes["tmp"]) == (0o755, 0o644, 0o755, 0o1777)


def test_what_was_packed_is_read_back() -> None:
    assert from_tar(read(to_tar(TREE))) == TREE


def test_a_hard_link_is_the_file_it_leads_to() -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        file = tarfile.TarInfo("./a")
        file.size = 1
        archive.addfile(file, io.BytesIO(b"x"))
        link = tarfile.TarInfo("./b")
        link.type, link.linkname = tarfile.LNKTYPE, "./a"
        archive.addfile(link)
    assert from_tar(read(content.getvalue()))["b"] == Entry(b"x")


def test_links_that_lead_to_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="leads to itself"):
        without_links({"a/b": Entry(link="c"), "a/c": Entry(link="/a/b")})


def test_a_path_that_leads_outside_is_refused() -> None:
    with pytest.raises(ValueError, match="leads out"):
        from_tar(read(to_tar({"../etc/passwd": Entry(b"")})))


def test_what_is_written_has_its_permissions(tmp_path: Path) -> None:
    write_below(tmp_path, TREE, {"tmp": 0o1777, "proc": 0o755})
    assert [(tmp_path / name).stat().st_mode & 0o7777 for name in ("tmp", "proc")] == [0o1777, 0o755]
    assert (tmp_path / "usr/bin/link").read_bytes() == b"#!/bin/true"
    assert (tmp_path / "usr/bin/tool").stat().st_mode & 0o777 == 0o755
