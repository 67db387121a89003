"""What real trainings do and kind stand-ins do not, each under a name, so that a test can be about one of them.

`TOY_MANNERS="-quiet,hangs"` takes names away from those that are on and adds others. What all of them mean, and where
it was seen, stands in docs/toy-trainer.md ("Manners").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE: Final = "TOY_MANNERS"

QUIET: Final = "quiet"
"""Only the last rank prints a step line; the others are silent."""
UNEVEN: Final = "uneven"
"""The first step lasts many times longer, a few later ones two or three times; a save takes as long as some steps."""
IMPORTS: Final = "imports"
"""Importing takes its time, and fails without the environment of CANN."""
COMPILES: Final = "compiles"
"""The first rank of each node runs `make` in the package's directory."""
CHILDREN: Final = "children"
"""Each rank starts a helper in a session of its own, which outlives it."""
HANGS: Final = "hangs"
"""A transfer from a rank that has died waits for it, as a collective on the device does."""
LATE_END: Final = "late-end"
"""The processor is destroyed before the final save; ranks leave seconds apart."""
ECHOES: Final = "echoes"
"""Healthy ranks print the errors that somebody else's fault gives them, before the culprit prints its own."""

ALL: Final = frozenset({QUIET, UNEVEN, IMPORTS, COMPILES, CHILDREN, HANGS, LATE_END, ECHOES})
DEFAULT: Final = frozenset({UNEVEN, IMPORTS, COMPILES, ECHOES})
"""What is on when nothing is said."""


def manners_from(environment: Mapping[str, str]) -> frozenset[str]:
    """Names that are on; raises ValueError for a name that is not known."""
    found = set(DEFAULT)
    for word in environment.get(VARIABLE, "").replace(",", " ").split():
        name = word.lstrip("+-")
        if name not in ALL:
            raise ValueError(f"{VARIABLE}: unknown name {name!r}; known are {', '.join(sorted(ALL))}")
        if word.startswith("-"):
            found.discard(name)
        else:
            found.add(name)
    return frozenset(found)
