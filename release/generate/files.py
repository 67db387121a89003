"""Pages and files that are made from the code: written, or with `--check` compared with what is there."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def write_or_check(module: str, pages: Mapping[str, str], arguments: list[str] | None = None) -> int:
    """The command of a generator; 1 with a sentence when a file is not what the code says.

    Args:
        module: that is run.
        pages: text of each file, by its path below the directory.
        arguments: of the command line.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=f"generate {', '.join(pages)}")
    parser.add_argument("--check", action="store_true", help="only compare, exit 1 when a file is not current")
    parser.add_argument("--directory", type=Path, default=ROOT)
    options = parser.parse_args(arguments)
    stale = []
    for name, text in pages.items():
        path: Path = options.directory / name
        if options.check:
            stale += [] if path.is_file() and path.read_text(encoding="utf-8") == text else [str(path)]
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        told = ", ".join(stale)
        print(f"not what the code says: {told}; run `python -m {module}` and commit it", file=sys.stderr)
    return 1 if stale else 0
