"""How long a rank may live without a sign of life: the number that agents, coordinators and operator share."""

from __future__ import annotations

from typing import Final

FENCE_AFTER_SECONDS: Final = 60
"""Time after the last message of a coordinator at which an agent ends ranks that show no sign of life."""
