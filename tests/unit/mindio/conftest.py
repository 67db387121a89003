"""Puts the simulator's package on the path, as a training image has it."""

from __future__ import annotations

import sys

from e2e.mindio.conformance.world import SIMULATOR

if str(SIMULATOR) not in sys.path:
    sys.path.insert(0, str(SIMULATOR))
