"""The version of this Hajob, for people and for whoever it talks to: what `pyproject.toml` says."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final


def _installed_version() -> str:
    try:
        return version("hajob")
    except PackageNotFoundError:
        return "unknown"


VERSION: Final = _installed_version()


def print_if_asked(program: str, arguments: Sequence[str]) -> bool:
    """Print the version where that is all that is asked for; whether it was."""
    if list(arguments) != ["--version"]:
        return False
    print(f"hajob {VERSION} ({program})")
    return True
