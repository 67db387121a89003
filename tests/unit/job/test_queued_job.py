"""A job in a queue of Kueue, through its controller: no pod before admission, a save before its quota goes back."""

from __future__ import annotations

import asyncio
from typing import Any

import yaml

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.kube.client import ApiError
from hajob.plan.state import JobPhase
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.workload import workload_view_of
from tests.rigs.job_controller import NAMESPACE, QUICKSTART, ControllerTown, condition_of, phase_of_job, settle_town
from tests.rigs.workloads import EVICTED, FLAVOR, PREEMPTED, READY, SHORT, WAITING, admission_of


class QueuedTown(ControllerTown):
    """A world with Kueue: what the test says of the Workload is what Kueue has written."""

    def __init__(self) -> None:
        raw = yaml.safe_load(QUICKSTART.read_text())
        raw["metadata"]["labels"] = {names.LABEL_QUEUE: "user-queue"}
        super().__init__(raw)
        queues = self.cluster.queues
        queues.served, queues.listed, queues.flavors = True, {""}, {FLAVOR.name: FLAVOR}

    @property
    def workload(self) -> Json:
        """Return the job's Workload on the server."""
        (found,) = [body for (plural, _, _), body in self.kube.objects.items() if plural == "workloads"]
        return found

    async def show(self, conditions: list[Json] | None = None, **status: Any) -> None:
        """Write these conditions as Kueue does, and show the Workload to the controller."""
        raw = self.workload
        if conditions is not None:
            given = any((one["type"], one["status"]) == ("QuotaReserved", "True") for one in conditions)
            admission = admission_of(raw) if given else None
            raw["status"] = {"conditions": conditions, "admission": admission, **status}
            self.kube.objects["workloads", NAMESPACE, raw["metadata"]["name"]] = raw
        self.cluster.queues.store_workload(workload_view_of(self.workload))
        self.controller.handle_changed_workload()
        await settle_town(self)

    async def train_queued(self) -> None:
        """Be admitted, and train."""
        await settle_town(self)
        await self.show(READY)
        await self.train()

    async def end_town(self) -> None:
        """End the controller."""
        await self.controller.stop_managing()


def play(scene: Any) -> None:
    """Play a scene in a new town."""

    async def whole() -> None:
        town = QueuedTown()
        try:
            await scene(town)
        finally:
            await town.end_town()

    asyncio.run(whole())


def test_no_pod_is_there_before_admission() -> None:
    async def scene(town: QueuedTown) -> None:
        await settle_town(town)
        assert town.workload["spec"]["queueName"] == "user-queue"
        await town.show(WAITING)
        assert town.pods() == []
        await town.clock.advance(5.0)
        assert condition_of(town, "Scheduled") == ("False", "WaitingInQueue", f"queue user-queue: {SHORT}")
        assert town.status()["summary"]["reason"] == "InQueue"
        await town.show(READY)
        made = town.pods()
        assert len(made) == 5
        selectors = {body["spec"].get("nodeSelector", {}).get("pool") for body in _bodies(town, names.ROLE_RANK)}
        assert selectors == {"a2"}, "the flavor's node labels"
        assert all("pool" not in body["spec"].get("nodeSelector", {}) for body in _bodies(town, names.ROLE_COORDINATOR))
        assert not any(key.startswith("kueue") for pod in made for key in _labels(town, pod.name))

    play(scene)


def _bodies(town: QueuedTown, role: str) -> list[Json]:
    labelled = [body for (plural, _, _), body in town.kube.objects.items() if plural == "pods"]
    return [body for body in labelled if body["metadata"]["labels"][names.LABEL_ROLE] == role]


def _labels(town: QueuedTown, pod: str) -> Json:
    found: Json = town.kube.objects["pods", NAMESPACE, pod]["metadata"]["labels"]
    return found


def test_an_eviction_is_a_stop_with_a_checkpoint() -> None:
    async def scene(town: QueuedTown) -> None:
        await town.train_queued()
        await town.show(EVICTED)
        assert phase_of_job(town) == JobPhase.SAVING
        assert town.links[-1].orders[-1].action == wire.CHECKPOINT
        assert town.links[-1].orders[-1].timeout_seconds == 1800, "spec.recovery.preemptionTimeoutSeconds"
        assert condition_of(town, "Suspended")[:2] == ("False", "Evicting")
        assert town.workload["status"]["conditions"][0]["status"] == "True", "the quota is the job's until it has saved"
        await town.report(milestones=[wire.Milestone(kind=wire.RESULT, incarnation=2, strategy="dump")])
        assert phase_of_job(town) == JobPhase.SUSPENDED
        assert town.workload["status"]["conditions"][0]["status"] == "True", "its pods have not gone"
        await town.end_deleted_pods()
        told = {one["type"]: one["status"] for one in town.workload["status"]["conditions"]}
        assert told["QuotaReserved"] == told["Admitted"] == told["PodsReady"] == "False"
        assert "admission" not in town.workload["status"]
        await town.show()
        await town.clock.advance(5.0)
        assert condition_of(town, "Suspended")[:2] == ("True", "Evicted")
        assert condition_of(town, "Scheduled")[2] == f"queue user-queue: evicted (Preempted): {PREEMPTED}"
        await town.show(READY)
        assert phase_of_job(town) == JobPhase.PENDING
        assert len([pod for pod in town.pods() if not pod.deleting]) == 5

    play(scene)


def test_quota_is_given_back_though_kueue_was_away() -> None:
    """Its webhook fails closed: the write is tried on, and no pod stays for it."""

    async def scene(town: QueuedTown) -> None:
        await town.train_queued()
        await town.show(EVICTED)
        await town.report(milestones=[wire.Milestone(kind=wire.RESULT, incarnation=2, strategy="dump")])
        away = ApiError(500, "InternalError", 'failed calling webhook "vworkload.kb.io": connection refused')
        town.kube.fail(away, away)
        await town.end_deleted_pods()
        assert town.pods() == []
        await town.clock.advance(10.0)
        told = {one["type"]: one["status"] for one in town.workload["status"]["conditions"]}
        assert told["Admitted"] == "False"

    play(scene)


def test_what_trains_trains_on_while_kueue_is_silent() -> None:
    async def scene(town: QueuedTown) -> None:
        await town.train_queued()
        del town.kube.objects["workloads", NAMESPACE, town.workload["metadata"]["name"]]
        town.cluster.queues.workloads.clear()
        town.controller.handle_changed_workload()
        await settle_town(town)
        assert phase_of_job(town) == JobPhase.RUNNING
        assert town.workload["spec"]["queueName"] == "user-queue", "it is asked for anew"
        await town.show()
        await town.clock.advance(5.0)
        assert condition_of(town, "Degraded")[:2] == ("True", "QuotaUnknown")
        await town.show(WAITING)
        assert phase_of_job(town) == JobPhase.SAVING, "Kueue says that there is no quota"

    play(scene)


def test_an_operator_without_kueue_starts_no_queued_job() -> None:
    async def scene(town: QueuedTown) -> None:
        town.cluster.queues.served = False
        await settle_town(town)
        await town.clock.advance(5.0)
        assert town.pods() == []
        assert "kueue.enabled" in condition_of(town, "Scheduled")[2]

    play(scene)
