"""MindSpore and the newest torch, each in an environment of its own.

`python -m e2e.mindspore_trainer --install` and `python -m e2e.torch_trainer --install` make them.
Their wheels are for Python 3.11; MindSpore 2.10 needs NumPy 1, so it cannot stand beside the packages of the tests,
and torch from the index is a build for NVIDIA's chips that wants their libraries on every machine. The lock files have
the hashes; whatever index pip is set to may lack them, and then everything else works all the same.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from e2e.bootstrap import environment
from e2e.bootstrap.paths import cache_directory
from e2e.bootstrap.problems import SetupError

VERSION: Final = (3, 11)
"""Of the Python that the wheels in the lock files are for."""


@dataclass(frozen=True)
class Framework:
    """What is installed.

    Attributes:
        name: Of the framework; the lock file is called so, in small letters.
        download: What pip fetches, for whoever waits.
        gigabytes: The disk needed, downloads and what is unpacked, and as much again as that for what runs beside it.
    """

    name: str
    download: str
    gigabytes: int

    @property
    def lock(self) -> Path:
        """The file with versions and hashes."""
        return Path(__file__).with_name(f"{self.name.lower()}.lock")

    def interpreter(self) -> Path:
        """Where the environment's interpreter is, whether it is there or not."""
        key = hashlib.sha256(self.lock.read_bytes() + sys.version.encode()).hexdigest()[:16]
        return cache_directory() / self.name.lower() / key / "bin/python"

    def install(self) -> None:
        """Make the environment, unless it is there.

        Raises:
            SetupError: This Python or this machine is not for it, or pip cannot have the packages.
        """
        target = self.interpreter().parents[1]
        if target.is_dir():
            return
        if sys.version_info[:2] != VERSION:
            raise SetupError(f"{self.name}'s wheels are for Python 3.11, and this is {sys.version.split()[0]}")
        target.parent.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(target.parent).free >> 30) < self.gigabytes:
            raise SetupError(f"{self.name} takes {self.gigabytes} GB of {target.parent}, where {free} are free")
        unfinished = target.with_name(f"{target.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", unfinished], check=True)
        packages = unfinished / "lib" / f"python{VERSION[0]}.{VERSION[1]}" / "site-packages"
        try:
            environment.install_into(packages, self.lock, f"installing {self.name} ({self.download})")
        finally:
            environment.remove_downloads()
        unfinished.rename(target)


MINDSPORE: Final = Framework("MindSpore", "0.9 GB", 6)
TORCH: Final = Framework("Torch", "2.6 GB", 14)
