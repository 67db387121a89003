"""Views read from caches what the commands ask a server for, and what may not be read stays unknown."""

from __future__ import annotations

import pytest

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.server import MemoryServer
from hajob.api import constants as names
from hajob.cli.cluster import ClusterError, ForbiddenError
from hajob.cli.objects import find_job
from hajob.clock import SystemClock
from hajob.kube.client import ApiError
from hajob.web.live import LiveCluster, Scope
from hajob.web.nodes import list_of_nodes
from hajob.web.one_job import whole_job
from tests.rigs.page_town import chip_node, open_town
from tests.rigs.told_job import NAME, NAMESPACE, NOW_MS, told_job
from tests.rigs.told_server import READY, rank_pod_object

OBJECTS = (
    ("hatrainingjobs", told_job()),
    *(("pods", rank_pod_object(number, **READY)) for number in range(4)),
    *(("nodes", chip_node(f"node-{number}")) for number in range(5)),
)


async def test_a_job_and_its_pods_come_out_of_the_caches() -> None:
    async with open_town(*OBJECTS) as town:
        await town.cluster.wait_for_answers()
        found = whole_job(town.cluster.objects, town.cluster.steps, NAMESPACE, NAME, NOW_MS)
        assert [seat["does"] for seat in found["seats"]] == ["training"] * 4


async def test_nodes_are_watched_once_they_are_asked_for() -> None:
    async with open_town(*OBJECTS) as town:
        with pytest.raises(ClusterError, match="could not be read"):
            list_of_nodes(town.cluster.objects, names.DEFAULT_RESOURCE_NAME, ("hajob-system", "kube-system"), NOW_MS)
        await town.cluster.watch_nodes()
        scope = town.cluster.scope
        found = list_of_nodes(town.cluster.objects, scope.resource, scope.namespaces, NOW_MS)
        assert [node["name"] for node in found["nodes"]] == [f"node-{number}" for number in range(5)]
        assert found["unknown"] == []


async def test_a_change_wakes_whoever_waits() -> None:
    async with open_town(*OBJECTS) as town:
        await town.cluster.wait_for_answers()
        seen = town.cluster.version
        town.put("hatrainingjobs", told_job(step=300))
        await town.cluster.wait_for_change(seen, 30.0)
        assert find_job(town.cluster.objects, NAMESPACE, NAME)["status"]["progress"]["step"] == 300


class Refusing(MemoryKube):
    """A server that lets nobody list these resources in all namespaces."""

    def __init__(self, server: MemoryServer, *resources: str) -> None:
        super().__init__(server)
        self._resources = resources

    def list_pages(self, resource: str, namespace: str = "", label_selector: str = "", field_selector: str = ""):  # type: ignore[no-untyped-def]  # noqa: ANN201
        if resource in self._resources and not namespace:
            raise ApiError(403, "Forbidden", "no")
        return super().list_pages(resource, namespace, label_selector, field_selector)

    def watch_objects(self, resource: str, namespace: str = "", *rest, **more):  # type: ignore[no-untyped-def]  # noqa: ANN002, ANN003, ANN201
        if resource in self._resources and not namespace:
            raise ApiError(403, "Forbidden", "no")
        return super().watch_objects(resource, namespace, *rest, **more)


async def test_who_may_not_list_all_jobs_sees_those_of_one_namespace() -> None:
    kube = Refusing(MemoryServer(SystemClock()), names.PLURAL, "pods", "nodes")
    async with LiveCluster(kube, SystemClock(), Scope(fallback=NAMESPACE)) as cluster:
        assert cluster.scope.namespace == NAMESPACE
        await cluster.watch_nodes()
        with pytest.raises(ForbiddenError):
            cluster.objects.find_object("/api/v1/nodes")
        with pytest.raises(ForbiddenError):
            cluster.objects.find_object("/api/v1/pods")
        assert cluster.objects.find_object(f"/api/v1/namespaces/{NAMESPACE}/pods") == {"items": []}
