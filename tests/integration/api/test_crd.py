"""The server takes the CRD as structural, fills in the defaults of the models, and guards the status."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.rest import MERGE_PATCH, ApiError
from hajob.api.job import HATrainingJob
from hajob.api.status import HATrainingJobStatus
from hajob.pods.coordinator_pod import coordinator_pod
from hajob.pods.rank_pod import build_rank_pod
from hajob.pods.settings import PodSettings
from tests.rigs.jobs_on_server import path_of_jobs

Job = dict[str, Any]
SETTINGS = PodSettings("hajob/sidecar:dev")


def test_the_schema_is_structural_and_nothing_is_left_out(crd: Job) -> None:
    conditions = {c["type"]: c["status"] for c in crd["status"]["conditions"]}
    assert conditions["Established"] == conditions["NamesAccepted"] == "True"
    assert "NonStructuralSchema" not in conditions


def test_the_server_fills_in_what_the_models_fill_in(
    control_plane: ControlPlane, crd: Job, job: Job, where: str
) -> None:
    stored = control_plane.api.create(path_of_jobs(where), job)
    from_server = HATrainingJob.from_object(stored).spec
    assert from_server == HATrainingJob.from_object(job).spec
    assert stored["spec"]["network"] == from_server.network.to_json()
    assert stored["spec"]["recovery"]["hang"] == {"stepTimeMultiple": 20, "minTimeoutSeconds": 120}


def test_columns_and_short_names(control_plane: ControlPlane, crd: Job, job: Job, where: str) -> None:
    control_plane.apply(job)
    for name in ("hajob", "hajobs", "hatrainingjobs"):
        printed = control_plane.kubectl("get", name, "-n", where).stdout
        assert printed.split("\n")[0].split() == [
            *("NAME", "STATE", "REASON", "SIZE", "STEP", "STEP-TIME", "PROTECTED", "GOODPUT", "RESTARTS", "AGE")
        ]
    assert (
        f"hatrainingjob.training.hajob.io/{job['metadata']['name']}"
        in control_plane.kubectl("get", "all", "-n", where).stdout
    )
    assert "Directory on a volume that all ranks share" in (
        control_plane.kubectl("explain", "hajob.spec.checkpoint.path").stdout.replace("\n    ", " ")
    )


def test_a_lower_fence_is_refused(control_plane: ControlPlane, crd: Job, job: Job, where: str) -> None:
    control_plane.apply(job)
    path = f"{path_of_jobs(where)}/{job['metadata']['name']}/status"
    whole = HATrainingJobStatus(fence=4, incarnation=2).to_json()
    control_plane.api.merge(path, {"status": whole})
    control_plane.api.merge(path, {"status": {"fence": 4, "incarnation": 3}})
    for late in (3, None):
        with pytest.raises(ApiError) as refused:
            control_plane.api.request("PATCH", path, {"status": {"fence": late}}, content_type=MERGE_PATCH)
        assert refused.value.status == 422
        assert "another operator has taken over" in str(refused.value)


def test_the_pods_of_the_quickstart_are_accepted(control_plane: ControlPlane, crd: Job, job: Job, where: str) -> None:
    stored = HATrainingJob.from_object(control_plane.api.create(path_of_jobs(where), job))
    pods = f"/api/v1/namespaces/{where}/pods?dryRun=All"
    for pod in (
        *(build_rank_pod(stored, rank, 1, SETTINGS, ["node-1", "node-2"]) for rank in range(4)),
        coordinator_pod(stored, 1, SETTINGS),
        coordinator_pod(stored, 2, SETTINGS, apart=False),
    ):
        answer = control_plane.api.create(pods, pod)
        assert answer["metadata"]["ownerReferences"][0]["uid"] == stored.metadata.uid


def test_a_pod_that_cannot_be_is_refused_by_the_dry_run(
    control_plane: ControlPlane, crd: Job, job: Job, where: str
) -> None:
    job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][0]["name"] = "missing"
    stored = HATrainingJob.from_object(control_plane.api.create(path_of_jobs(where), job))
    with pytest.raises(ApiError, match="missing"):
        control_plane.api.create(f"/api/v1/namespaces/{where}/pods?dryRun=All", build_rank_pod(stored, 0, 1, SETTINGS))
