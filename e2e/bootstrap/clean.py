"""`make clean`: give back the disk that set-up, runs and tests took. The next command sets everything up anew.

python3 -m e2e.bootstrap.clean
"""

from __future__ import annotations

import shutil
import sys

from e2e.bootstrap.paths import CHECKOUT, cache_directory, runs_directory

MADE = ("against", "bin", "build", "logs", "pip", "tmp", "venvs")
TOOLS = (".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".import_linter_cache")


def main() -> int:
    """Remove what was made, unless a run still uses it."""
    if runs_directory().is_dir() and any(path.is_dir() for path in runs_directory().iterdir()):
        print(f"runs are on, or have left something, in {runs_directory()}: `make down` first", file=sys.stderr)
        return 1
    for name in MADE:
        shutil.rmtree(cache_directory() / name, ignore_errors=True)
    shutil.rmtree(runs_directory(), ignore_errors=True)
    for name in TOOLS:
        shutil.rmtree(CHECKOUT / name, ignore_errors=True)
    print(f"removed what was kept in {cache_directory()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
