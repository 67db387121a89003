"""`helm test`: installed rightly, or what is wrong."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from hajob.api.base import Json
from hajob.app.installed import PATIENCE_SECONDS, problem_after_install
from hajob.app.settings import Settings
from release.generate.crd_schema import custom_resource_definition
from tests.rigs.fake_clock import FakeClock
from tests.rigs.fake_kube import FakeKube

SETTINGS = Settings()


class Cluster:
    """A server, and an operator that renews its Lease or not."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.kube = FakeKube(self.clock)

    def install_crd(self, change: Any = lambda _: None) -> None:
        crd = copy.deepcopy(custom_resource_definition())
        change(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"])
        self.kube.put("customresourcedefinitions", "", crd)

    def renew(self, second: int, holder: str = "one") -> None:
        spec: Json = {"holderIdentity": holder, "renewTime": f"2026-01-01T00:00:{second:02}.000000Z"}
        self.kube.put("leases", SETTINGS.namespace, {"metadata": {"name": SETTINGS.lease_name}, "spec": spec})

    async def verdict(self, *, renewing: bool = True) -> str:
        task = asyncio.create_task(problem_after_install(self.kube, self.clock, SETTINGS))
        second = 0
        while not task.done():
            await self.clock.advance(1)
            second = (second + 1) % 60
            if renewing:
                self.renew(second)
        return await task


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


async def test_an_installation_that_works(cluster: Cluster) -> None:
    cluster.install_crd()
    assert await cluster.verdict() == ""
    assert cluster.clock.seconds < 1000 + PATIENCE_SECONDS / 2


async def test_an_older_crd_is_named(cluster: Cluster) -> None:
    cluster.install_crd(lambda properties: properties.pop("output"))
    assert "lacks spec.output" in await cluster.verdict()


async def test_a_lease_that_nobody_renews_is_told(cluster: Cluster) -> None:
    cluster.install_crd()
    cluster.renew(1)
    assert await cluster.verdict(renewing=False) == "no operator has renewed its Lease"


async def test_a_lease_without_a_holder_is_told(cluster: Cluster) -> None:
    cluster.install_crd()
    cluster.renew(1, holder="")
    assert "has no holder" in await cluster.verdict(renewing=False)


async def test_what_the_server_refuses_is_told(cluster: Cluster) -> None:
    assert "404" in await cluster.verdict(renewing=False)
