"""Says whether there is an interpreter with torch, and what to install where there is none; `--install` makes one.

The one that it makes has the newest torch. It is used where HAJOB_TORCH_PYTHON=newest asks for it.
"""

from __future__ import annotations

import sys

from e2e.bootstrap.frameworks import TORCH
from e2e.trainer.framework_python import main, torch_python

if __name__ == "__main__":
    sys.exit(main(TORCH, sys.argv[1:], torch_python))
