"""Builds what only one target needs, where it is missing: `python -m e2e.bootstrap.provide helm`, of `make chart`."""

from __future__ import annotations

import sys

from e2e.bootstrap.binaries import named
from e2e.bootstrap.problems import SetupError
from e2e.bootstrap.setup import provide


def main() -> int:
    """Build the programs whose names are given; 1 when that fails."""
    try:
        provide(*map(named, sys.argv[1:]))
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
