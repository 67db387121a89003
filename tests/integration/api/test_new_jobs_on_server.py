"""What cannot be served is refused by a real API server; what it accepts, odd as it may be, becomes pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.rest import ApiError as Refused
from e2e.harness.odd_templates import jobs
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.conditions import Reason
from hajob.api.job import HATrainingJob
from hajob.job.admission import evaluate_pods
from hajob.kube.client import ApiError
from hajob.kube.credentials import from_kubeconfig
from hajob.kube.http import HttpKube
from hajob.pods.settings import PodSettings
from tests.rigs.example_jobs import pods_of_every_kind
from tests.rigs.unserved_jobs import BY_A_RULE, BY_THE_OPERATOR, MUTABLE, QUICKSTART, edited

SETTINGS = PodSettings("hajob/sidecar:dev")
SAMPLE = 15
"""Jobs of the generator; the server in memory sees many more (tests.unit.objects.test_odd_templates)."""


@pytest.fixture
async def kube(control_plane: ControlPlane, crd: Json) -> AsyncIterator[HttpKube]:
    async with HttpKube(await from_kubeconfig(str(control_plane.kubeconfig))) as made:
        yield made


async def test_a_new_job_is_refused_with_the_field_and_what_to_do(kube: HttpKube) -> None:
    for case, (edit, sentence) in BY_A_RULE.items():
        body = edited(edit)
        template = body["spec"]["template"]["spec"]["containers"][0]
        template.pop("volumeMount", None)  # kubectl's strict check would say it first
        with pytest.raises(ApiError) as refused:
            await kube.create_object(names.PLURAL, "default", body, dry_run=True)
        assert (refused.value.status, sentence in refused.value.message) == (422, True), (case, refused.value.message)


async def test_what_no_rule_can_say_is_told_by_the_operator(kube: HttpKube) -> None:
    for case, (edit, sentence) in BY_THE_OPERATOR.items():
        stored = await kube.create_object(names.PLURAL, "default", edited(edit), dry_run=True)
        reason, message = await evaluate_pods(kube, HATrainingJob.from_object(stored), SETTINGS)
        assert reason in {Reason.INVALID, Reason.POD_REFUSED}, case
        assert sentence in message, case


def test_every_pod_of_what_is_accepted_can_be_made(control_plane: ControlPlane, crd: Json) -> None:
    async def made(job: Json) -> None:
        async with HttpKube(await from_kubeconfig(str(control_plane.kubeconfig))) as kube:
            stored = HATrainingJob.from_object(await kube.create_object(names.PLURAL, "default", job, dry_run=True))
            assert await evaluate_pods(kube, stored, SETTINGS) == (Reason.VALID, "")
            for pod in pods_of_every_kind(stored):
                await kube.create_object("pods", "default", pod, dry_run=True)

    @settings(max_examples=SAMPLE, suppress_health_check=list(HealthCheck), deadline=None, phases=[Phase.generate])
    @given(jobs())
    def sample(job: Json) -> None:
        asyncio.run(made(job))

    sample()


GROUP, PLURAL, KIND = "earlier.hajob.io", "earlierjobs", "EarlierJob"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Earlier:
    """The CRD under another name, which no `kubectl get hajob` meets, and first without the rules about new jobs."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane = plane
        self.jobs = f"/apis/{GROUP}/{names.VERSION}/namespaces/{namespace}/{PLURAL}"
        self._crd: Json = yaml.safe_load((CHECKOUT / "crds" / f"{names.GROUP}_{names.PLURAL}.yaml").read_text())
        self._crd["metadata"] = {"name": f"{PLURAL}.{GROUP}"}
        called = {"plural": PLURAL, "singular": KIND.lower(), "kind": KIND, "listKind": f"{KIND}List"}
        self._crd["spec"] |= {"group": GROUP, "names": called}

    def apply(self, *, with_rules: bool) -> None:
        crd = deepcopy(self._crd)
        if not with_rules:
            crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].pop("x-kubernetes-validations")
        self._plane.apply_server_side(crd)
        self._plane.wait("the rules to count", lambda: self._refuses_a_bad_job() is with_rules or None)

    def _refuses_a_bad_job(self) -> bool | None:
        try:
            self.create(edited(BY_A_RULE["nodeName"][0], "probe"), query="?dryRun=All")
        except Refused as error:
            return True if error.status == 422 else None
        return False

    def create(self, body: Json, query: str = "") -> Json:
        made = {**body, "apiVersion": f"{GROUP}/{names.VERSION}", "kind": KIND}
        made["metadata"] = {"name": body["metadata"]["name"]}
        return self._plane.api.create(self.jobs + query, made)

    def patch(self, body: Json, subresource: str = "") -> Any:
        return self._plane.api.merge(f"{self.jobs}/job{subresource}", body)

    def delete(self) -> None:
        self._plane.api.delete(f"{self.jobs}/job")

    def remove(self) -> None:
        self._plane.api.delete(f"{CRDS}/{PLURAL}.{GROUP}")


@pytest.fixture
def earlier(control_plane: ControlPlane, where: str) -> Iterator[Earlier]:
    made = Earlier(control_plane, where)
    yield made
    made.remove()


def test_a_job_from_before_the_rules_stays_manageable(earlier: Earlier) -> None:
    """One with much that is refused today; then a good one, into which an edit brings none of it."""
    earlier.apply(with_rules=False)
    worst = deepcopy(QUICKSTART)
    worst["metadata"] = {"name": "job"}
    for case in (
        "nodeName",
        "restartPolicy",
        "launcher",
        "queueName without Volcano",
        "checkpoints on no volume",
        "savedLimit",
        "a log rule that is no pattern",
    ):
        BY_A_RULE[case][0](worst)
    worst["spec"]["suspend"] = True
    earlier.create(worst)
    earlier.patch({"status": {"fence": 1, "incarnation": 1}}, "/status")
    earlier.apply(with_rules=True)
    earlier.patch({"status": {"fence": 2, "incarnation": 1}}, "/status")
    earlier.patch({"metadata": {"finalizers": [names.FINALIZER], "labels": {"a": "b"}}})
    earlier.patch({"spec": {"suspend": False, "recovery": {"mode": "Observe"}}})
    earlier.patch({"metadata": {"finalizers": []}})
    earlier.delete()
    good = edited(lambda job: job["spec"].update(suspend=True))
    earlier.create(good)
    earlier.patch({"status": {"fence": 1, "incarnation": 1}}, "/status")
    for case in MUTABLE:
        edit, sentence = BY_A_RULE[case]
        body = deepcopy(good)
        edit(body)
        with pytest.raises(Refused, match="is invalid") as refused:
            earlier.patch({"spec": body["spec"]})
        assert sentence in str(refused.value), case
    earlier.delete()
