"""The project's own Python environment in the cache: pinned packages, and the checkout as an editable install.

One per checkout, lock file and Python. pip's own settings (index, certificates, proxies) are the user's; only what
would put files elsewhere is switched off. An environment without its stamp was interrupted, is removed and made
again; what was downloaded for it is still there.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.bootstrap import progress
from e2e.bootstrap.machine import require_disk
from e2e.bootstrap.paths import CHECKOUT, cache_directory, logs_directory
from e2e.bootstrap.problems import SetupError

LOCK = CHECKOUT / "requirements.lock"
STAMP = "complete"
EDITABLE_STAMP = "editable"
PIP_SETTINGS = "PIP_INDEX_URL, https_proxy or PIP_CERT (pip's settings)"
GIBIBYTES = 1.5


def environment_directory() -> Path:
    """Where this checkout's environment for this Python and lock file is."""
    key = hashlib.sha256(LOCK.read_bytes())
    for part in (CHECKOUT, sys.version, sys.base_prefix):
        key.update(f"\0{part}".encode())
    return cache_directory() / "venvs" / key.hexdigest()[:16]


def python() -> Path:
    """The interpreter of the environment."""
    return environment_directory() / "bin" / "python"


def is_complete() -> bool:
    """Whether the environment is there and fits the checkout."""
    directory = environment_directory()
    try:
        stamped = (directory / EDITABLE_STAMP).read_text()
    except OSError:
        return False
    return (directory / STAMP).exists() and stamped == _project_hash() and python().exists()


def make() -> None:
    """Make what is missing of the environment.

    Raises:
        SetupError: It cannot be made.
    """
    directory = environment_directory()
    if not (directory / STAMP).exists():
        require_disk(cache_directory(), GIBIBYTES, "The Python environment")
        shutil.rmtree(directory, ignore_errors=True)
        _create(directory)
        _pip("installing Python packages", "--require-hashes", "-r", LOCK)
        (directory / STAMP).write_text(str(CHECKOUT))
        _remove_left_behind(directory)
    _pip("installing the project", "--no-deps", "--no-build-isolation", "-e", CHECKOUT)
    (directory / EDITABLE_STAMP).write_text(_project_hash())
    remove_downloads()


def install_into(target: Path, lock: Path, what: str) -> None:
    """Install the packages of `lock` below `target`, outside of the environment."""
    _pip(what, "--require-hashes", "--no-deps", "--target", target, "-r", lock)


def remove_downloads() -> None:
    """Remove what pip kept for the case that it is interrupted."""
    shutil.rmtree(cache_directory() / "pip", ignore_errors=True)


def pip_environment() -> dict[str, str]:
    """The environment of pip: the user's settings, but nothing that installs elsewhere or writes outside the cache."""
    moved = {"PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_VIRTUALENV", "PYTHONPATH", "PYTHONHOME"}
    kept = {name: value for name, value in os.environ.items() if name not in moved}
    temporary = cache_directory() / "pip" / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    own = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "TMPDIR": str(temporary), "PIP_USER": "0"}
    return {"PIP_CACHE_DIR": str(cache_directory() / "pip")} | kept | own


def _create(directory: Path) -> None:
    command = [sys.executable, "-m", "venv", "--without-pip", str(directory)]
    progress.run("making the Python environment", command, logs_directory() / "venv.log", pip_environment(), "")


def _pip(what: str, *arguments: str | Path) -> None:
    command = [*pip_command(), "install", "--quiet", "--no-compile", *map(str, arguments)]
    log = logs_directory() / f"{what.replace(' ', '-')}.log"
    progress.run(what, command, log, pip_environment(), PIP_SETTINGS)


def pip_command() -> Sequence[str]:
    """A pip that works on our environment: its own, else the system's told to, else an error with what to type."""
    own = str(python())
    if _works([own, "-m", "pip"]):
        return [own, "-m", "pip"]
    if importlib.util.find_spec("ensurepip") and _works([own, "-m", "ensurepip"], option="--default-pip"):
        return [own, "-m", "pip"]
    for found in ([sys.executable, "-m", "pip"], ["pip3"], ["pip"]):
        if _works([*found, "--python", own]):
            return [*found, "--python", own]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    raise SetupError(
        f"This Python ({sys.executable}) has neither ensurepip nor a pip of version 22.3 or later. As root, type:\n"
        f"    apt-get install -y python{version}-venv      (Debian, Ubuntu; else your system's package for pip)\n"
        "Then type the command again."
    )


def _works(command: Sequence[str], option: str = "--version") -> bool:
    environment: Mapping[str, str] = pip_environment()
    try:
        done = subprocess.run([*command, option], env=environment, capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def _project_hash() -> str:
    """Changes when the project has to be installed again."""
    return hashlib.sha256((CHECKOUT / "pyproject.toml").read_bytes()).hexdigest()


def _remove_left_behind(current: Path) -> None:
    """Remove environments of this checkout with an older lock file, and those whose checkout is gone."""
    for other in current.parent.iterdir():
        try:
            checkout = Path((other / STAMP).read_text())
        except OSError:
            continue  # in the making
        same_python = (other / "bin" / "python").resolve() == python().resolve()
        if other != current and (not checkout.is_dir() or (checkout == CHECKOUT and same_python)):
            shutil.rmtree(other, ignore_errors=True)
