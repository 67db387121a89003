"""Set-up, and then a module of the project in its own environment.

    python3 -m e2e.bootstrap [--python-only] [-m MODULE [ARGUMENT ...]]

This file, and only this one of the package, must also be understood by Pythons that are too old (from 3.7), so that
it can look for a better one and, failing that, say so.
"""

from __future__ import annotations

import os
import shutil
import sys

OLDEST, NEWEST = (3, 11), (3, 14)


def use_supported_python() -> None:
    """Go on in a supported Python, if this is none and there is one on the PATH."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        better = shutil.which(f"python3.{minor}")
        if better:
            os.execv(better, [better, "-m", "e2e.bootstrap", *sys.argv[1:]])
    sys.exit(
        f"Python 3.{OLDEST[1]} to 3.{NEWEST[1]} is needed; python3 is {sys.version_info[0]}.{sys.version_info[1]} "
        "and no other one is on the PATH.\nInstall one (python3.12, say) and type the command again."
    )


def main(arguments: list[str]) -> int:
    """Set up, then become the module that was asked for."""
    from e2e.bootstrap import environment, setup
    from e2e.bootstrap.problems import SetupError

    cluster = "--python-only" not in arguments[:1]
    rest = arguments if cluster else arguments[1:]
    try:
        setup.set_up(cluster=cluster)
    except SetupError as error:
        sys.stderr.write(f"\n{error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted. Type the command again: it goes on where it stopped.\n")
        return 130
    if rest:
        python = str(environment.python())
        os.execve(python, [python, *rest], setup.execution_environment())
    sys.stderr.write(f"set-up: everything is there ({environment.python().parents[3]})\n")
    return 0


if __name__ == "__main__":
    use_supported_python()
    sys.exit(main(sys.argv[1:]))
