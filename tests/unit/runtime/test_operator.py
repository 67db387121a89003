"""How the parts of the process are put together."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

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


async def broken() -> None:
    raise RuntimeError("a bug")


async def test_a_frontend_that_nobody_supervises_is_unhealthy(operator: Operator) -> None:
    assert operator._unhealthy() == ""
    operator._frontend._supervisor = asyncio.create_task(broken())
    await settle()
    assert operator._unhealthy() == "the frontend has ended"


async def test_a_task_that_ends_is_unhealthy_and_says_why(operator: Operator, caplog: pytest.LogCaptureFixture) -> None:
    operator._look_after([asyncio.create_task(broken(), name="lease")])
    await settle()
    assert operator._unhealthy() == "the task lease has ended"
    assert "RuntimeError: a bug" in caplog.text


async def test_the_lease_is_given_back_also_after_a_task_has_failed(operator: Operator) -> None:
    await operator._lease.step()
    operator._look_after([asyncio.create_task(broken(), name="announcer")])
    await settle()
    await operator._shut_down(web.AppRunner(web.Application()))
    lease = await operator._kube.get("leases", "hajob-system", "hajob-operator")
    assert lease["spec"]["holderIdentity"] == ""
