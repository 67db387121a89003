"""Says whether there is an interpreter with MindSpore, and what to do where there is none; `--install` makes one."""

from __future__ import annotations

import sys

from e2e.bootstrap import mindspore
from e2e.bootstrap.problems import SetupError
from e2e.trainer.framework_python import main, mindspore_python


def install_and_look() -> int:
    """Make the environment where that is asked for; 1 where there is no interpreter with MindSpore in the end."""
    if sys.argv[1:] == ["--install"]:
        try:
            mindspore.install()
        except SetupError as problem:
            sys.stderr.write(f"{problem}\n")
            return 1
    return main("mindspore", mindspore_python)


if __name__ == "__main__":
    sys.exit(install_and_look())
