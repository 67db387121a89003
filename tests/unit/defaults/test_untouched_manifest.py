"""Every path of every action, once, with a manifest that sets nothing but what it must."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hajob.plan.state import JobPhase
from tests.unit.defaults.rig import NODES, Rig


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    made = Rig(nodes=NODES + getattr(request, "param", 0))
    await made.train()
    yield made
    await made.close()


one_more = pytest.mark.parametrize("rig", [1], indirect=True)


def outcome(rig: Rig) -> tuple[str, str]:
    """Action and outcome of the newest incident."""
    newest = rig.status()["incidents"][-1]
    return newest["action"], newest["outcome"]


async def trains_again(rig: Rig, *orders: str, phase: JobPhase = JobPhase.RUNNING) -> None:
    await rig.until(lambda: rig.is_in(phase), 3000)
    assert rig.actions == ["START", *orders]
    before = rig.world.step_done
    await rig.advance(5)
    assert rig.world.step_done > before
    assert not rig.world.patient.left


async def test_shrink_where_no_node_is_free(rig: Rig) -> None:
    rig.lose_node(rig.node_of(2))
    took = await rig.until(lambda: rig.is_in(JobPhase.SHRUNK), 1000)
    assert 270 <= took < 300
    await trains_again(rig, "REPLACE", "SHRINK", phase=JobPhase.SHRUNK)
