"""Image and plugin, really built of the packages in the cache: what is in them, and that it runs.

`make nightly` plays them. Nothing is downloaded: without the packages (`make image-archive`, `make e2e
PROVIDER=kubelets`) they are skipped.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from release import debian, image, layout, oci, plugin
from release.oci import Layer
from release.platforms import of_this_machine

pytestmark = [
    pytest.mark.timeout(900),  # a whole image is packed and compressed
    pytest.mark.skipif("HAJOB_LONG_TESTS" not in os.environ, reason="some minutes: make nightly"),
]
HIDE = Path(__file__).with_name("hide_libraries.py")
HERE = of_this_machine()


def lacking() -> str:
    """What the cache lacks for this machine's image."""
    store = image.cache() / "debian"
    absent = [each.file for each in debian.locked(HERE) if not (store / each.file).is_file()]
    return absent[0] if absent else ""


@pytest.fixture(scope="module")
def layers() -> list[Layer]:
    """This machine's, made once."""
    if absent := lacking():
        pytest.skip(f"the packages of the image are not in the cache ({absent}): make image-archive")
    return layout.layers(HERE, image.cache())


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_the_dockerfile_packs_what_is_in_the_archive(
    layers: list[Layer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "layers", lambda *_: layers)
    root = tmp_path / "image"
    monkeypatch.setattr(sys, "argv", ["image", "--platform", HERE.name, "--root", str(root)])  # as the Dockerfile does
    assert image.main() == 0
    _, packed = oci.read(image.build(HERE, tmp_path))
    written = {path.relative_to(root).as_posix(): path for path in root.rglob("*")}
    files = {name: path for name, path in written.items() if path.is_symlink() or path.is_file()}
    assert files.keys() == packed.keys()
    for name, path in files.items():
        entry = packed[name]
        content = b"" if path.is_symlink() else path.read_bytes()
        link = str(path.readlink()) if path.is_symlink() else ""
        assert (name, link, content == entry.content) == (name, entry.link, True)
        assert path.is_symlink() or (name, permissions(path)) == (name, entry.mode)
    directories = {name: permissions(path) for name, path in written.items() if name not in files}
    assert {name: mode for name, mode in directories.items() if mode != 0o755} == {"tmp": 0o1777}
    assert layout.DIRECTORIES.keys() <= directories.keys()


@pytest.fixture(scope="module")
def unpacked(layers: list[Layer], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin's archive, as krew or a user unpacks it."""
    directory = tmp_path_factory.mktemp("plugin")
    tree = {path: entry for layer in layers for path, entry in layer.tree.items()}
    with tarfile.open(fileobj=io.BytesIO(plugin.archive(tree, HERE))) as archive:
        archive.extractall(directory, filter="data")
    return directory


# The shell runs before the libraries are hidden; then it can start nothing of the machine's, which is asked, and
# `readlink` is its own.
APART = """
"$1" "$2" || exit 90
! /bin/true 2>/dev/null || exit 91
shift 2
readlink() { echo "$2"; }
. "$0"
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="namespaces of its own: root only")
@pytest.mark.parametrize(
    ("command", "words", "answer"),
    [("kubectl-hajob", ["--version"], "(kubectl hajob)"), ("kubectl_complete-hajob", ["doc"], "doctor")],
)
def test_it_runs_without_this_machines_libraries(unpacked: Path, command: str, words: list[str], answer: str) -> None:
    started = ["unshare", "--mount", "sh", "-c", APART, str(unpacked / command), sys.executable, str(HIDE), *words]
    done = subprocess.run(started, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert answer in done.stdout
