"""Builds Prometheus and promtool where they are missing: `python -m e2e.bootstrap.prometheus`, of `make metrics`."""

from __future__ import annotations

import sys

from e2e.bootstrap.binaries import PROMETHEUS, PROMTOOL
from e2e.bootstrap.problems import SetupError
from e2e.bootstrap.setup import provide


def main() -> int:
    """Build them; 1 when that fails."""
    try:
        provide(PROMETHEUS, PROMTOOL)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
