"""What real trainings do and kind stand-ins do not, each under a name, so that a test can be about one of them.

All are on; `TOY_MANNERS="-quiet,-hangs"` takes some away. What they mean, and where it was seen, stands in
docs/internals/toy-trainer.md ("Manners").
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
"""On, unless a test takes them away."""


def manners_from(environment: Mapping[str, str]) -> frozenset[str]:
    """Names that are on; raises ValueError for a name that is not known."""
    words = environment.get(VARIABLE, "").replace(",", " ").split()
    for word in words:
        if not word.startswith("-") or word[1:] not in ALL:
            known = ", ".join(f"-{name}" for name in sorted(ALL))
            raise ValueError(f"{VARIABLE}: unknown word {word!r}; known are {known}")
    return ALL - {word[1:] for word in words}
