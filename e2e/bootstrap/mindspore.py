"""MindSpore's packages, in an environment of their own: `python -m e2e.mindspore_trainer --install`.

MindSpore 2.10 has wheels for Python 3.11 and needs NumPy 1, so it cannot stand beside the packages of the tests. Its
lock file has the hashes; whatever index pip is set to may lack it, and then everything else works all the same.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from e2e.bootstrap import environment
from e2e.bootstrap.paths import cache_directory
from e2e.bootstrap.problems import SetupError

LOCK: Final = Path(__file__).with_name("mindspore.lock")
VERSION: Final = (3, 11)
"""Of the Python that the wheels in the lock file are for."""
NEEDED_BYTES: Final = 6 << 30
"""Downloads of 0.9 GB, unpacked to 2.8; as much again is left for what runs beside it."""


def interpreter() -> Path:
    """Where the environment's interpreter is, whether it is there or not."""
    key = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:16]
    return cache_directory() / "mindspore" / key / "bin/python"


def install() -> None:
    """Make the environment, unless it is there.

    Raises:
        SetupError: This Python or this machine is not for it, or pip cannot have the packages.
    """
    target = interpreter().parents[1]
    if target.is_dir():
        return
    if sys.version_info[:2] != VERSION:
        raise SetupError(f"MindSpore's wheels are for Python 3.11, and this is {sys.version.split()[0]}")
    target.parent.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(target.parent).free) < NEEDED_BYTES:
        raise SetupError(f"MindSpore takes 6 GB of {target.parent}, where {free >> 30} are free")
    unfinished = target.with_name(f"{target.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", unfinished], check=True)
    packages = unfinished / "lib" / f"python{VERSION[0]}.{VERSION[1]}" / "site-packages"
    try:
        environment.install_into(packages, LOCK, "installing MindSpore (0.9 GB)")
    finally:
        environment.remove_downloads()
    unfinished.rename(target)
