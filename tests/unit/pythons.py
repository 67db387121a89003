"""The Pythons of this machine, for what runs in training images: these bring 3.7 to 3.14.

    python -m tests.unit.pythons [PYTEST-ARGUMENT ...]

`make pythons`: the unit tests by each Python that the operator supports, those of launcher, shims and controller host
with each that training images bring, and a table of it. Arguments are for the former.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from e2e.bootstrap.__main__ import NEWEST, OLDEST
from e2e.bootstrap.paths import CHECKOUT

MINORS = range(7, 15)
SUPPORTED = range(OLDEST[1], NEWEST[1] + 1)
IN_TRAINING_IMAGES = ("tests/unit/launcher/test_other_pythons.py", "tests/unit/controller_host/test_host.py")
PYTEST = ("-m", "pytest", "-q")
HEAD = "| Python | operator, sidecar, kubectl hajob | launcher, shims, controller host |\n| --- | --- | --- |"


@cache
def interpreter(minor: int) -> str | None:
    """The Python of this version, on the PATH or among pyenv's; one that says another version is none."""
    versions = sorted((Path.home() / ".pyenv/versions").glob(f"3.{minor}.*/bin/python3"))
    for candidate in (*map(str, versions), shutil.which(f"python3.{minor}")):
        if candidate and _version(candidate) == f"3.{minor}":
            return candidate
    return None


def _version(python: str) -> str:
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def run(command: list[str]) -> tuple[int, str]:
    """Exit code and last line of a command; where it fails, all it says is printed."""
    done = subprocess.run(
        command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    return done.returncode, (done.stdout.strip().splitlines() or [""])[-1]


def main(arguments: list[str]) -> int:
    """Run them, print the table; 1 where one fails."""
    found = {minor: python for minor in MINORS if (python := interpreter(minor))}
    failed = 0
    print(HEAD, flush=True)
    for minor, python in found.items():
        code, said = _operator(python, arguments) if minor in SUPPORTED else (0, "not supported")
        other_code, also_said = run([sys.executable, *PYTEST, *IN_TRAINING_IMAGES, "-k", f"3.{minor}"])
        failed += code != 0 or other_code != 0
        print(f"| 3.{minor} | {_counts(said)} | {_counts(also_said)} |", flush=True)
    absent = ", ".join(f"3.{minor}" for minor in MINORS if minor not in found)
    print(f"{len(found)} of {len(MINORS)} Pythons are here" + (f"; not run: {absent}" if absent else ""))
    return min(failed, 1)


def _operator(python: str, arguments: list[str]) -> tuple[int, str]:
    """In an environment of its own."""
    return run([python, "-m", "e2e.bootstrap", "--python-only", *PYTEST, "-n", "2", "tests/unit", *arguments])


def _counts(last_line: str) -> str:
    return re.sub(r" in [\d.]+s.*|=+ ?", "", last_line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
