"""The version before this one: its sources out of the project's history, for upgrades that are really made."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Final

from e2e.bootstrap.paths import CHECKOUT

VERSION: Final = "0.1.0"
COMMIT: Final = "76cdcc896e250c75cb6b34ee5b026ddc85dce9c4"
"""What 0.1.0 is (docs/decisions/0037-which-commit-is-0-1-0.md); by its hash, because a clone need not have tags."""
LOOK_SECONDS: Final = 1.0
"""How often one of its standbys looks whether the Lease was given back; those of this version look twice as often."""
PARTS: Final = ("operator", "trainer_sidecar", "charts", "crds", "pyproject.toml", "README.md", "LICENSE")


class NoHistoryError(RuntimeError):
    """This checkout does not have that version; the message says why."""


def sources(directory: Path) -> Path:
    """Write the sources of the version before to `directory`, unless they are there; returns it.

    Raises:
        NoHistoryError: It is not in this checkout's history (a shallow clone, an archive).
    """
    if directory.is_dir():
        return directory
    command = ["git", "-C", str(CHECKOUT), "archive", "--format=tar", COMMIT, *PARTS]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        raise NoHistoryError(f"git cannot be run: {error}") from error
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip()
        raise NoHistoryError(f"{VERSION} (commit {COMMIT}) is not in this checkout's history: {words}")
    unpacked = directory.with_name(f"{directory.name}.new")
    shutil.rmtree(unpacked, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(unpacked, filter="data")
    unpacked.rename(directory)
    return directory
