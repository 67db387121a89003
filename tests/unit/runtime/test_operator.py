"""How the parts of the process are put together."""

from __future__ import annotations

import asyncio

import pytest

from hajob.runtime.app import Operator
from hajob.runtime.credentials import Credentials
from hajob.runtime.settings import Settings
from tests.unit.runtime.runtime_fakes import FakeClock, FakeKube, settle


@pytest.fixture
async def operator() -> Operator:
    return Operator(Settings(identity="one"), FakeKube(), Credentials("https://nowhere"), FakeClock())


async def test_every_list_of_pods_is_told_to_the_core(operator: Operator) -> None:
    watch = asyncio.create_task(operator._pods.run())
    await settle()
    assert (operator._caches.pods_are_complete, operator._caches.pods_version) == (True, "100")
    watch.cancel()
