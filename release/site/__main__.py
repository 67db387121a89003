"""Build the site: `python -m release.site [--serve]`. Its packages have a lock file and a directory of their own."""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from e2e.bootstrap import environment
from e2e.bootstrap.paths import CHECKOUT, cache_directory
from e2e.bootstrap.problems import SetupError

LOCK: Final = CHECKOUT / "release/site/requirements.lock"
CONFIGURATION: Final = CHECKOUT / "release/site/mkdocs.yml"
OUTPUT: Final = CHECKOUT / "dist/site"


def main() -> int:
    """Build or serve it; what MkDocs ends with, 1 where its packages cannot be had."""
    parser = argparse.ArgumentParser(prog="release.site", description="the pages of docs as a site")
    parser.add_argument("--serve", action="store_true", help="serve it on this machine, and follow edits")
    parser.add_argument("--install", action="store_true", help="only install what builds it")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where it is written")
    options = parser.parse_args()
    try:
        packages = installed_packages()
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    if options.install:
        return 0
    command = ["serve"] if options.serve else ["build", "--clean", "--site-dir", str(options.output)]
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *command, "--strict", "--config-file", str(CONFIGURATION)],
        # An advertisement of Material's, and its look at a newer version.
        env={**os.environ, "PYTHONPATH": str(packages), "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"},
        check=False,
    )
    if done.returncode == 0 and not options.serve:
        print(f"{options.output / 'index.html'}: {sum(1 for _ in options.output.rglob('*.html'))} pages")
    return done.returncode


def installed_packages() -> Path:
    """Return the directory with the packages of the lock file, which are installed once for each version of it.

    Raises:
        SetupError: pip cannot install them.
    """
    target = directory_of_packages()
    if not target.is_dir():
        unfinished = target.with_name(f"{target.name}.unfinished")
        environment.install_into(unfinished, LOCK, "installing what builds the site")
        unfinished.rename(target)
    return target


def directory_of_packages() -> Path:
    """Return where the packages of the lock file are, or would be."""
    key = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:16]
    return cache_directory() / "site" / key


if __name__ == "__main__":
    sys.exit(main())
