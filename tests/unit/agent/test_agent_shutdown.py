"""An agent that is told to end speaks on while somebody listens, and no longer: its pod holds the chips up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.rigs.certificates import Authority
from tests.rigs.rank_pod import Pod
from trainer_sidecar.agent import __main__ as entry
from trainer_sidecar.agent.clock import BootClock
from trainer_sidecar.agent.settings import read_settings

PATIENCE = 60.0
LONG = 1e6


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> entry.Agent:
    """With a report that nobody has taken yet."""
    monkeypatch.setattr(entry, "LAST_WORDS_SECONDS", LONG)
    clock = BootClock()
    made = entry.Agent(read_settings(Pod(tmp_path, Authority()).environment()), clock)
    made.node.outbox.begin_stream(clock.now())
    return made


async def test_without_a_coordinator_nothing_is_waited_for(agent: entry.Agent) -> None:
    await asyncio.wait_for(agent.send_last_reports(), PATIENCE)


async def test_a_coordinator_that_leaves_meanwhile_ends_the_wait(agent: entry.Agent) -> None:
    agent.service.is_alone.clear()
    words = asyncio.ensure_future(agent.send_last_reports())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not words.done()
    agent.service.is_alone.set()
    await asyncio.wait_for(words, PATIENCE)
