"""Says whether there is an interpreter with MindSpore, and what to do where there is none; `--install` makes one."""

from __future__ import annotations

import sys

from e2e.bootstrap.frameworks import MINDSPORE
from e2e.trainer.framework_python import main, mindspore_python

if __name__ == "__main__":
    sys.exit(main(MINDSPORE, sys.argv[1:], mindspore_python))
