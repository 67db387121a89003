"""An operator whose CRD is of another version says so: in its log, its readiness, and in every job."""

from __future__ import annotations

import asyncio
import copy
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp.test_utils import TestClient, TestServer

from hajob import metrics
from hajob.api.constants import QUARANTINE_CRD_NAME
from hajob.app.core import OperatorCore
from hajob.app.crd_check import CHECK_SECONDS, CrdCheck
from hajob.kube.client import ApiError
from release.generate.crd_schema import custom_resource_definition, quarantine_definition
from tests.rigs.fake_clock import FakeClock
from tests.rigs.fake_kube import FakeKube
from tests.rigs.job_controller import ControllerTown, condition_of, settle_town

CRDS = "customresourcedefinitions"


def install(kube: FakeKube, change: Any = lambda _: None) -> None:
    crd = copy.deepcopy(custom_resource_definition())
    change(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"])
    kube.put(CRDS, "", crd)
    kube.put(CRDS, "", quarantine_definition())


async def answer(check: CrdCheck) -> tuple[int, str]:
    """What /readyz says, beside an operator that is ready otherwise."""
    app = metrics.build_application(lambda: "", lambda: check.older, lambda: check.newer)
    async with TestClient(TestServer(app)) as client, client.get("/readyz") as response:
        return response.status, await response.text()


@pytest.fixture
def changes() -> list[str]:
    return []


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def kube(clock: FakeClock) -> FakeKube:
    return FakeKube(clock)


@pytest.fixture
def check(kube: FakeKube, clock: FakeClock, changes: list[str]) -> CrdCheck:
    core = SimpleNamespace(handle_changed_crd=lambda _: changes.append("changed"))
    return CrdCheck(kube, clock, cast("OperatorCore", core))


async def test_the_crd_of_this_version_is_no_news(check: CrdCheck, kube: FakeKube, changes: list[str]) -> None:
    install(kube)
    await check.compare_once()
    assert (check.older, check.newer, changes) == ("", "", [])


async def test_an_older_crd_is_told_once(
    check: CrdCheck, kube: FakeKube, changes: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    install(kube, lambda schema: schema["status"]["properties"].pop("goodput"))
    await check.compare_once()
    await check.compare_once()
    sentence = "the CRD is older than this operator, it lacks status.goodput: kubectl apply -f crds/"
    assert (check.older, check.newer) == (sentence, "")
    assert await answer(check) == (503, sentence)
    assert changes == ["changed"]
    assert [one.message for one in caplog.records if one.levelno >= logging.WARNING] == [sentence]


async def test_a_crd_that_is_applied_later_is_noticed(
    check: CrdCheck, kube: FakeKube, clock: FakeClock, changes: list[str]
) -> None:
    install(kube, lambda schema: schema["spec"]["properties"].pop("output"))
    task = asyncio.create_task(check.compare_for_ever())
    await clock.advance(1)
    assert check.older
    install(kube, lambda schema: schema["spec"]["properties"].update(wings={"type": "string"}))
    await clock.advance(CHECK_SECONDS)
    assert (check.older, check.newer) == (
        "",
        "the CRD is newer than this operator, which does not read spec.wings",
    )
    assert changes == ["changed", "changed"]
    assert await answer(check) == (200, f"ok; {check.newer}")
    task.cancel()


async def test_what_was_known_stays_while_nobody_says(
    check: CrdCheck, kube: FakeKube, caplog: pytest.LogCaptureFixture
) -> None:
    install(kube, lambda schema: schema["spec"]["properties"].pop("output"))
    await check.compare_once()
    kube.fail(ApiError(0, "Unreachable", "no route"))
    await check.compare_once()
    assert check.older
    kube.fail(ApiError(403, "Forbidden", "not yours"))
    await check.compare_once()
    assert "the installed CRDs cannot be compared" in caplog.text


async def test_a_crd_that_is_missing_is_lacking_as_a_whole(check: CrdCheck, kube: FakeKube) -> None:
    """An upgrade that applied the one CRD and forgot the other."""
    install(kube)
    del kube.objects[CRDS, "", QUARANTINE_CRD_NAME]
    await check.compare_once()
    assert f"it lacks all of {QUARANTINE_CRD_NAME}" in check.older


async def test_every_job_says_that_the_crd_is_older() -> None:
    town = ControllerTown()
    await town.train()
    assert condition_of(town, "Degraded")[1] == "NotDegraded"
    town.cluster.crd_is_older = "the CRD is older"
    town.controller.status.publish_status(lazy=True)
    await settle_town(town)
    await town.clock.advance(60)
    assert condition_of(town, "Degraded")[:2] == ("True", "CRDOlder")
    await town.controller.stop_managing()


async def test_a_job_says_which_of_its_fields_nobody_reads() -> None:
    town = ControllerTown()
    await town.controller.stop_managing()
    town.stored()["spec"]["wings"] = 2
    town.open()
    await town.train()
    found = condition_of(town, "Degraded")
    assert found[:2] == ("True", "FieldsNotRead")
    assert "spec.wings" in found[2]
    await town.controller.stop_managing()
