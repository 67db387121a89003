"""Says whether there is an interpreter with MindSpore, and what to install where there is none."""

from __future__ import annotations

import sys

from e2e.trainer.framework_python import main, mindspore_python

if __name__ == "__main__":
    sys.exit(main("mindspore", mindspore_python))
