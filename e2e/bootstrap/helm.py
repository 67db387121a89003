"""Builds Helm where it is not there yet: `python -m e2e.bootstrap.helm`, of `make chart`."""

from __future__ import annotations

import sys

from e2e.bootstrap.binaries import HELM
from e2e.bootstrap.problems import SetupError
from e2e.bootstrap.setup import provide


def main() -> int:
    """Build it; 1 when that fails."""
    try:
        provide(HELM)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
