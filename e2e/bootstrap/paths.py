"""Where things are kept: one cache directory, found by the same rule in the set-up, the tests and the demo."""

from __future__ import annotations

import os
import platform
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def cache_directory() -> Path:
    """The cache: $HAJOB_CACHE, else hajob/ in the XDG cache, else .cache/ in the checkout.

    The XDG cache counts only where it can be written: a user without a home has /nonexistent there.
    """
    if chosen := os.environ.get("HAJOB_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or _home_cache()
    if base and _writable(Path(base)):
        return Path(base).absolute() / "hajob"
    return CHECKOUT / ".cache"


def _home_cache() -> str:
    home = os.environ.get("HOME", "")
    return f"{home}/.cache" if home else ""


def _writable(directory: Path) -> bool:
    """Whether `directory` exists, or can be made, and can be written."""
    for candidate in (directory, *directory.parents):
        if candidate.is_dir():
            return candidate != Path("/") and os.access(candidate, os.W_OK | os.X_OK)
    return False


def binaries_directory() -> Path:
    """Where built binaries are kept."""
    return cache_directory() / "bin"


def runs_directory() -> Path:
    """Where the directories of running clusters are."""
    return cache_directory() / "runs"


def logs_directory() -> Path:
    """Where the logs of failed runs are kept."""
    return cache_directory() / "logs"


def platform_name() -> str:
    """The platform in Go's words, for example linux-amd64."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"{platform.system().lower()}-{machine}"
