"""The real eviction API asks the budgets of a job: it waits, goes node by node, or goes through."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.rest import ApiError
from hajob.api import constants as names
from hajob.api.job import HATrainingJob
from hajob.capacity.drains import Budgets, EvictionTurn, Openings, budgets_of_job
from hajob.job.apply import carry_out_change
from hajob.job.policies.drains import BUDGETS, budget_objects
from hajob.kube.http import HttpKube
from hajob.plan.placements import CoordinatorPlacement, Placement, Placements
from hajob.plan.policy import Policy
from hajob.pods.naming import budget_name

Object = dict[str, Any]


class Served:
    """A job with three rank pods and a coordinator that the kubelets of no node call ready, and its budgets."""

    def __init__(self, plane: ControlPlane, kube: HttpKube, job: HATrainingJob) -> None:
        self.plane, self.kube, self.job = plane, kube, job
        self.namespace = job.metadata.namespace

    async def run_pods(self) -> None:
        for name, role in (("rank-0", "rank"), ("rank-1", "rank"), ("rank-2", "rank"), ("coordinator", "coordinator")):
            labels = {names.LABEL_JOB_UID: self.job.metadata.uid, names.LABEL_ROLE: role}
            spec = {
                "containers": [{"name": "a", "image": "a"}],
                "nodeName": f"nowhere-{name}",
                "tolerations": [{"operator": "Exists"}],
            }
            await self.kube.create_object(
                "pods", self.namespace, {"metadata": {"name": name, "labels": labels}, "spec": spec}
            )
            await self.ready(name)

    async def ready(self, name: str, *, ready: bool = True) -> None:
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
        await self.kube.patch_object("pods", self.namespace, name, {"status": status}, subresource="status")

    async def allow(self, ranks: int, coordinator: int, healthy: int = 3) -> None:
        """The budgets say this, and their controller has counted."""
        for budget in budget_objects(self.job, Budgets(ranks, coordinator)):
            await carry_out_change(self.kube, budget)

        def counted(role: str, count: int) -> bool:
            path = f"/apis/policy/v1/namespaces/{self.namespace}/{BUDGETS}/{budget_name(self.job, role)}"
            found = self.plane.api.get(path)
            status = found.get("status") or {}
            known = status.get("observedGeneration") == found["metadata"]["generation"]
            return bool(known and status.get("currentHealthy") == count)

        self.plane.wait("the budgets to be counted", lambda: counted("rank", healthy) and counted("coordinator", 1))

    def evict(self, name: str) -> int:
        """HTTP status of the answer."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        try:
            self.plane.api.create(f"/api/v1/namespaces/{self.namespace}/pods/{name}/eviction", body)
        except ApiError as error:
            return error.status
        return 201


@pytest.fixture
async def served(control_plane: ControlPlane, kube: HttpKube, crd: Object, job: Object, namespace: str) -> Served:
    raw = await kube.create_object(names.PLURAL, namespace, {**job, "metadata": {"name": "job"}})
    made = Served(control_plane, kube, HATrainingJob.from_object(raw))
    await made.run_pods()
    return made


async def test_evictions_wait_for_a_move_and_go_through_in_the_end(served: Served) -> None:
    await served.allow(3, 1)
    assert {served.evict(name) for name in ("rank-0", "rank-1", "rank-2", "coordinator")} == {429}
    await served.allow(0, 0)
    assert {served.evict(name) for name in ("rank-0", "rank-1", "rank-2", "coordinator")} == {201}


async def test_without_moves_one_rank_pod_after_the_other_goes(served: Served) -> None:
    await served.allow(2, 0)
    assert [served.evict(name) for name in ("rank-0", "rank-1")] == [201, 429]


async def test_an_eviction_without_a_cordon_gets_its_turn(served: Served) -> None:
    """Nobody announced it, so nothing is moved: it is refused until the job has trained for the timeout."""
    desired = Placements(tuple(Placement(rank, 1) for rank in range(3)), CoordinatorPlacement(1))
    turn, timeout = EvictionTurn(Openings()), 900.0

    async def at(now: float) -> list[int]:
        wanted = budgets_of_job(desired, Policy(), overdue=False, opened=turn.is_open_now(now, timeout))
        await served.allow(wanted.ranks, wanted.coordinator)
        return [served.evict("rank-0"), served.evict("rank-1")]

    assert [await at(0.0), await at(timeout - 1)] == [[429, 429]] * 2
    assert await at(timeout) == [201, 429]
    assert served.evict("coordinator") == 201


async def test_a_pod_that_is_not_ready_may_always_go(served: Served) -> None:
    await served.ready("rank-1", ready=False)
    await served.allow(3, 1, healthy=2)
    assert [served.evict(name) for name in ("rank-0", "rank-1")] == [429, 201]


async def test_the_next_leader_takes_the_budgets_over(served: Served) -> None:
    await served.allow(3, 1)
    await served.allow(2, 1)
    assert served.evict("rank-0") == 201
