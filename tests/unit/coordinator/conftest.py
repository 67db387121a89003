"""What most tests of the coordinator begin with."""

from __future__ import annotations

import pytest

from tests.rigs.coordinator import World


@pytest.fixture
def world() -> World:
    """A job that trains and has finished a step."""
    world = World()
    world.start()
    world.step(1)
    return world
