"""An operator with a list of namespaces: what it reads, and what one namespace that is refused costs the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from e2e.memory_api.requests import Matching, Request, requests
from hajob.api import constants as names
from hajob.app.core import OperatorCore
from hajob.app.frontend import Frontend
from hajob.app.settings import Settings
from hajob.clock import SystemClock
from hajob.kube.client import ApiError
from hajob.kube.credentials import ApiCredentials
from hajob.sources.pod import PodView
from release.generate.crd_schema import custom_resource_definition, quarantine_definition
from tests.rigs.fake_clock import FakeClock, settle
from tests.rigs.fake_kube import FakeKube
from tests.rigs.kopf_stand_in import KopfStandIn
from tests.rigs.metrics import sample
from tests.rigs.operator import LedOperator, OperatorWorld
from tests.rigs.tenants import EIGHT_CHIPS, RecordedTenants

FORBIDDEN = ApiError(403, "Forbidden", 'User "operator" cannot list resource "pods" in the namespace "b"')


def in_namespace(name: str) -> Matching:
    """Every request for something in a namespace."""

    def matches(request: Request) -> bool:
        return f"/namespaces/{name}/" in request.path

    return matches


# ------------------------------------------------------------------------------------------------- the setting


def served(text: str) -> tuple[str, ...]:
    return Settings.from_environment({"HAJOB_WATCH_NAMESPACES": text}).served_namespaces()


def test_names_are_separated_by_commas_and_empty_means_all() -> None:
    assert served("a, b,a") == ("a", "b")
    assert served(" ") == served("") == ("",)


@pytest.mark.parametrize("text", ["team-*", "!a", "a,,b", ",", "A", "a b", "-a"])
def test_what_is_no_name_of_a_namespace_is_refused(text: str) -> None:
    """kopf would take some of these for patterns, and an empty list for all namespaces."""
    with pytest.raises(SystemExit, match=r"HAJOB_WATCH_NAMESPACES=.* is no name of a namespace"):
        served(text)


def test_the_variable_of_version_0_1_is_refused_not_ignored() -> None:
    """Ignored, it would make the operator serve all namespaces."""
    with pytest.raises(SystemExit, match="HAJOB_WATCH_NAMESPACE is a list now: set HAJOB_WATCH_NAMESPACES"):
        Settings.from_environment({"HAJOB_WATCH_NAMESPACE": "a"})


# ------------------------------------------------------------------------------------------------ what is read


@pytest.fixture
async def world() -> OperatorWorld:
    made = OperatorWorld(HAJOB_WATCH_NAMESPACES="a,b")
    for name in ("a", "b", "c"):
        await made.kube.create_object("namespaces", "", {"metadata": {"name": name}})
    for definition in (custom_resource_definition(), quarantine_definition()):
        await made.kube.create_object("customresourcedefinitions", "", definition)
    return made


async def pod(world: OperatorWorld, namespace: str) -> None:
    """A pod of a job."""
    metadata = {"name": "rank", "labels": {names.LABEL_JOB_UID: f"job-in-{namespace}"}}
    await world.kube.create_object(
        "pods", namespace, {"metadata": metadata, "spec": {"containers": [{"name": "trainer", "image": "i"}]}}
    )


@pytest.fixture
def pods_of_jobs(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The pods that the core was told of, by namespace and name."""
    told: set[str] = set()
    genuine = OperatorCore.handle_changed_pod

    def changed(core: OperatorCore, pod: PodView, *, deleted: bool) -> None:
        told.add(pod.key)
        genuine(core, pod, deleted=deleted)

    monkeypatch.setattr(OperatorCore, "handle_changed_pod", changed)
    return told


async def test_pods_of_jobs_are_read_where_jobs_are_served(pods_of_jobs: set[str], world: OperatorWorld) -> None:
    for namespace in ("a", "b", "c"):
        await pod(world, namespace)
    led = LedOperator(world)
    await led.wait_until_leading()
    assert pods_of_jobs == {"a/rank", "b/rank"}
    await led.end()


async def test_the_highest_fence_of_any_of_them_counts(world: OperatorWorld) -> None:
    for namespace, fence in (("a", 7), ("b", 41), ("c", 900)):
        await world.job("job", fence, namespace)
    led = LedOperator(world)
    await led.wait_until_leading()
    assert (await world.lease())["leaseTransitions"] == 42
    await led.end()


async def test_a_refused_namespace_keeps_no_other_waiting(pods_of_jobs: set[str], world: OperatorWorld) -> None:
    await world.job("job", 7, "a")
    await world.job("job", 41, "b")
    await pod(world, "a")
    await pod(world, "b")
    refused = world.server.faults.refuse(FORBIDDEN, matching=in_namespace("b"), times=None)
    led = LedOperator(world)
    await led.wait_until_leading()
    assert (await world.lease())["leaseTransitions"] == 8
    assert pods_of_jobs == {"a/rank"}
    assert await led.asked("/healthz") == "ok"
    assert await led.asked("/readyz") == "ok; namespace b is not served: it may not be read"
    refused.end()
    await world.clock.advance(30)
    assert pods_of_jobs == {"a/rank", "b/rank"}
    assert await led.asked("/healthz") == "ok"
    await led.end()


async def test_an_operator_that_may_read_none_is_not_ready(world: OperatorWorld) -> None:
    """So a rolling upgrade whose rights are wrong stops at its first pod."""
    for namespace in ("a", "b"):
        world.server.faults.refuse(FORBIDDEN, matching=in_namespace(namespace), times=None)
    led = LedOperator(world)
    await world.clock.advance(60)
    assert await led.asked("/readyz") == "still listing pods, hatrainingjobs"
    assert not world.frontend.starts
    led.task.cancel()


async def test_one_that_may_list_pods_everywhere_but_no_jobs_is_not(world: OperatorWorld) -> None:
    """The chart lets it: pods of everybody take chips."""
    refused = world.server.faults.refuse(FORBIDDEN, matching=requests(names.PLURAL), times=None)
    led = LedOperator(world)
    await world.clock.advance(60)
    assert await led.asked("/readyz") == "still listing hatrainingjobs"
    refused.end()
    await led.wait_until_leading()
    assert await led.asked("/readyz") == "ok"
    await led.end()


async def test_what_is_refused_is_told_until_it_no_longer_is(world: OperatorWorld) -> None:
    """Pods may be read everywhere, but the Role is gone, and comes back; the watches begin anew meanwhile."""
    led = LedOperator(world)
    await led.wait_until_leading()
    assert (await led.asked("/readyz"), counted("b")) == ("ok", 0)
    refused = world.server.faults.refuse(
        FORBIDDEN,
        matching=lambda request: in_namespace("b")(request) and requests("resourcequotas")(request),
        times=None,
    )
    for stream in world.server.open_streams():
        stream.end()
    await world.clock.advance(30)
    assert await led.asked("/readyz") == "ok; namespace b is not served: it may not be read"
    assert (counted("a"), counted("b")) == (0, 1)
    refused.end()
    await world.clock.advance(80)
    assert (await led.asked("/readyz"), await led.asked("/healthz"), counted("b")) == ("ok", "ok", 0)
    await led.end()


def counted(namespace: str) -> float:
    return sample("hajob_namespace_refused", namespace=namespace)


# ------------------------------------------------------------------------------------------------ other tenants


@pytest.fixture
async def told() -> AsyncIterator[RecordedTenants]:
    made = RecordedTenants("a", "b")
    await settle()
    yield made
    for task in made.tasks:
        task.cancel()


async def test_jobs_that_are_not_served_occupy_their_nodes(told: RecordedTenants) -> None:
    """Another operator's, or those of a namespace that has left the list: they train on."""
    for namespace in ("a", "c"):
        metadata = {"name": "rank", "labels": {names.LABEL_JOB_UID: f"job-in-{namespace}"}}
        body = {"containers": [{"name": "main", "resources": {"limits": EIGHT_CHIPS}}], "nodeName": f"node-{namespace}"}
        told.kube.put("pods", namespace, {"metadata": metadata, "spec": body, "status": {"phase": "Running"}})
    await settle()
    assert [now for _, now in told.pods if now] == ["node-c"]


async def test_quotas_are_read_where_jobs_are_served(told: RecordedTenants) -> None:
    for namespace in ("a", "b", "c"):
        quota: dict[str, Any] = {"metadata": {"name": "q"}, "status": {"hard": {"pods": "5"}, "used": {"pods": "5"}}}
        told.kube.put("resourcequotas", namespace, quota)
    await settle()
    assert {namespace for namespace, _, _ in told.quotas} == {"a", "b"}


# ------------------------------------------------------------------------------------------------- the frontend


@pytest.fixture
async def kopf(monkeypatch: pytest.MonkeyPatch) -> KopfStandIn:
    return KopfStandIn(monkeypatch)


async def test_kopf_starts_once_jobs_can_be_listed_somewhere(kopf: KopfStandIn) -> None:
    """It asks for namespaces that are refused by itself, for ever; but for the CRD only once."""
    clock = FakeClock()
    kube = FakeKube(clock)
    for namespace in ("a", "b"):
        kube.server.faults.refuse(FORBIDDEN, matching=in_namespace(namespace), times=4 if namespace == "b" else None)
    frontend = Frontend(kube, ApiCredentials("https://nowhere"), clock, ("a", "b"))
    frontend.start_serving(cast("OperatorCore", None))
    await clock.advance(1)
    assert kopf.begun.empty()
    await clock.advance(30)
    await kopf.next_begin()
    await frontend.stop_serving()


@pytest.mark.parametrize(
    ("namespaces", "scope"), [(("a", "b"), {"namespaces": ("a", "b")}), (("",), {"clusterwide": True})]
)
async def test_kopf_is_told_the_namespaces(
    kopf: KopfStandIn, namespaces: tuple[str, ...], scope: dict[str, object]
) -> None:
    frontend = Frontend(FakeKube(), ApiCredentials("https://nowhere"), SystemClock(), namespaces)
    frontend.start_serving(cast("OperatorCore", None))
    given = await kopf.next_begin()
    assert {name: given.get(name) for name in ("namespaces", "clusterwide") if name in given} == scope
    await frontend.stop_serving()
