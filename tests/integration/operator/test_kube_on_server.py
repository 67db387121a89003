"""The API port against a real server: what it sends is understood, what it is told is told on."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from e2e.cluster.control_plane import ControlPlane
from hajob.api import constants as names
from hajob.api.job import HATrainingJob
from hajob.job.pod_index import PodIndex
from hajob.kube.client import ApiError
from hajob.kube.credentials import (
    ApiCredentials,
    CredentialsError,
    from_service_account,
    load_credentials,
)
from hajob.kube.http import HttpKube
from hajob.pki.tls_secret import read_tls_secret, tls_secret
from tests.rigs.certificates import certificates_of_a_job

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "labels": {"app": "x"}},
    "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "nowhere"},
}


async def test_create_get_patch_and_delete_with_the_right_uid_only(kube: HttpKube, namespace: str) -> None:
    made = await kube.create_object("pods", namespace, POD)
    with pytest.raises(ApiError) as again:
        await kube.create_object("pods", namespace, POD)
    assert (again.value.status, again.value.reason, again.value.may_pass) == (409, "AlreadyExists", False)
    patched = await kube.patch_object("pods", namespace, "a", {"metadata": {"labels": {"app": "y"}}})
    assert patched["metadata"]["labels"] == {"app": "y"}
    with pytest.raises(ApiError) as other:
        await kube.delete_object("pods", namespace, "a", uid="00000000-0000-0000-0000-000000000000")
    assert other.value.status == 409
    await kube.delete_object("pods", namespace, "a", uid=made["metadata"]["uid"], grace_seconds=0)
    with pytest.raises(ApiError) as gone:
        await kube.get_object("pods", namespace, "a")
    assert gone.value.status == 404


async def test_a_dry_run_leaves_nothing_and_tells_why(kube: HttpKube, namespace: str) -> None:
    await kube.create_object("pods", namespace, POD, dry_run=True)
    assert [page.items async for page in kube.list_pages("pods", namespace)] == [[]]
    with pytest.raises(ApiError, match="Required value") as refused:
        await kube.create_object("pods", namespace, {**POD, "spec": {"containers": []}}, dry_run=True)
    assert refused.value.details["causes"][0]["field"] == "spec.containers"


async def test_versions_tell_whether_a_list_is_newer_than_a_write(kube: HttpKube, namespace: str) -> None:
    """A pod that came and went unseen is found by that (hajob.job.pod_index)."""

    async def listed() -> str:
        return [page.resource_version async for page in kube.list_pages("pods", namespace)][-1]

    table, before = PodIndex(), await listed()
    made = await kube.create_object("pods", namespace, POD)
    table.note_created(made)
    await kube.delete_object("pods", namespace, "a", uid=made["metadata"]["uid"], grace_seconds=0)
    table.listed = before
    assert table.missed_pods() == []
    table.listed = await listed()
    assert [pod.uid for pod in table.missed_pods()] == [made["metadata"]["uid"]]


async def test_a_coordinators_token_tells_which_pod_it_is(
    kube: HttpKube, control_plane: ControlPlane, namespace: str
) -> None:
    pod = await kube.create_object("pods", namespace, POD)
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "a", "uid": pod["metadata"]["uid"]}
    request = {"spec": {"audiences": [names.COORDINATOR_TOKEN_AUDIENCE], "boundObjectRef": bound}}
    answer = control_plane.api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token", request)
    token = answer["status"]["token"]
    assert await kube.pod_of_token(token, names.COORDINATOR_TOKEN_AUDIENCE) == pod["metadata"]["uid"]
    assert await kube.pod_of_token(token, "somebody.example") is None
    assert await kube.pod_of_token("nonsense", names.COORDINATOR_TOKEN_AUDIENCE) is None


async def test_the_certificates_of_a_job_survive_the_server(
    kube: HttpKube, crd: dict[str, Any], job: dict[str, Any], where: str
) -> None:
    stored = HATrainingJob.from_object(await kube.create_object(names.PLURAL, where, job))
    material = certificates_of_a_job(stored.metadata.uid)
    secret = await kube.create_object("secrets", where, tls_secret(stored, material))
    assert read_tls_secret(secret) == material


async def test_a_service_account_is_enough_and_a_bad_one_is_named(
    control_plane: ControlPlane, namespace: str, tmp_path: Any
) -> None:
    token = control_plane.api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token", {"spec": {}})
    (tmp_path / "token").write_text(token["status"]["token"])
    (tmp_path / "ca.crt").write_bytes(control_plane.ca_file.read_bytes())
    host, _, port = control_plane.server.removeprefix("https://").rpartition(":")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    credentials = from_service_account(str(tmp_path), environment)
    async with HttpKube(credentials) as kube:
        with pytest.raises(ApiError) as forbidden:
            await kube.get_object("pods", namespace, "a")
        assert (forbidden.value.status, forbidden.value.reason) == (403, "Forbidden")
        (tmp_path / "token").write_text("nonsense")
        with pytest.raises(ApiError) as unknown:
            await kube.get_object("pods", namespace, "a")
        assert unknown.value.status == 401
        (tmp_path / "token").write_text(token["status"]["token"])
        with pytest.raises(ApiError) as again:
            await kube.get_object("pods", namespace, "a")
        assert again.value.status == 403
    with pytest.raises(CredentialsError, match="HAJOB_SERVICE_ACCOUNT_DIR"):
        await load_credentials("", str(tmp_path / "missing"))
    with pytest.raises(CredentialsError, match="HAJOB_KUBECONFIG"):
        await load_credentials(str(tmp_path / "missing"), "")


async def test_no_server_is_one_more_answer(tmp_path: Any) -> None:
    async with HttpKube(ApiCredentials("https://127.0.0.1:9")) as kube:
        with pytest.raises(ApiError) as error:
            await kube.get_object("pods", "a", "b")
    assert (error.value.status, error.value.reason, error.value.may_pass) == (0, "Unreachable", True)


async def test_the_operator_says_who_it_is(kube: HttpKube, control_plane: ControlPlane, namespace: str) -> None:
    await kube.create_object(
        "secrets", namespace, {"metadata": {"name": "s"}, "data": {"k": base64.b64encode(b"v").decode()}}
    )

    def seen() -> bool:
        log = control_plane.layout.audit_log.read_text(encoding="utf-8")
        return any("hajob-operator/" in line and namespace in line for line in log.splitlines())

    assert control_plane.wait("the write in the audit log", seen)
