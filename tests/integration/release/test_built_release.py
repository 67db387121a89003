"""Image and plugin, really built of the packages in the cache: what is in them, and that it runs.

Nothing is downloaded: without the packages (`make image-archive`, `make e2e PROVIDER=kubelets`) they are skipped.
"""

from __future__ import annotations

import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from release import debian, image, layout, plugin
from release.oci import Layer
from release.platforms import PLATFORMS

HIDE = Path(__file__).with_name("hide_libraries.py")
HERE = PLATFORMS[{"x86_64": "linux/amd64", "aarch64": "linux/arm64"}[platform.machine()]]


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
