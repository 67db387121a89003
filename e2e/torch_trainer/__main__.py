"""Says whether there is an interpreter with torch, and what to install where there is none."""

from __future__ import annotations

import sys

from e2e.trainer.framework_python import NoPythonError, torch_python


def main() -> int:
    """0 with one, 1 without."""
    try:
        torch_python()
    except NoPythonError as error:
        sys.stderr.write(f"make e2e TRAINER=torch: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
