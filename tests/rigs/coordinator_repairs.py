"""How far the ranks are with a repair when another controller takes over: the codes of MindIO's answers."""

from __future__ import annotations

from tests.rigs.coordinator import World

LOCKED, PAUSED, STOPPED, CLEANED, REPAIRED, REBUILT, ROLLED_BACK = 12, 14, 18, 20, 22, 32, 24
SAVED, RENAMED = 5, 8
ANSWERED_BEFORE = {"naming": (LOCKED, STOPPED), "strategy": (LOCKED, STOPPED, CLEANED)}
"""What ranks have answered to MindIO when it asks for this; what follows the strategy comes on top."""


def keep_store_at_gates(world: World) -> None:
    """Have the gates of the ranks keep what these have written into the store; it outlives the store's pod."""
    for agent in world.agents.values():
        agent.written = []
