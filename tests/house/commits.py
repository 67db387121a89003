"""How much of the product one commit changes, from the history of git."""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tests.house.measures import GENERATED

COMMITS: Final = 40
"""So many of the newest are looked at: about what a piece of work takes, so that its effect is seen."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of some numbers, and what nine in ten of them do not exceed."""

    median: float
    p90: float

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Spread:
        """Compute it of at least two numbers."""
        return cls(statistics.median(numbers), statistics.quantiles(numbers, n=10, method="inclusive")[-1])


@dataclass(frozen=True, slots=True)
class Changes:
    """What the newest commits changed of the product.

    Attributes:
        files: Modules that one commit changes.
        packages: Directories of these.
    """

    files: Spread
    packages: Spread


def changes(top: Path, directories: Collection[str], commits: int = COMMITS) -> Changes | None:
    """Look at the newest commits that change Python code in these directories, merges and generated modules apart.

    Returns:
        None where there is no history of so many: `top` is the content of an archive, or a shallow clone.
    """
    pathspecs = [*(f":(glob){name}/**/*.py" for name in directories), *(f":(exclude)*{name}" for name in GENERATED)]
    command = ["git", "log", "--no-merges", f"--max-count={commits}", "--format=%x00", "--name-only", "--", *pathspecs]
    if not (top / ".git").exists():
        return None
    try:
        told = subprocess.run(command, cwd=top, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    changed = [part.split() for part in told.split("\0")[1:]]
    if len(changed) < commits:
        return None
    packages = [len({PurePosixPath(name).parent for name in names}) for names in changed]
    return Changes(Spread.of([len(names) for names in changed]), Spread.of(packages))
