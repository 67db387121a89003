"""Hajob's own containers pass Pod Security `restricted`, and an installation can change what it must."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.api.job import HATrainingJob
from hajob.objects.coordinator_pod import coordinator_pod
from hajob.objects.rank_pod import rank_pod
from hajob.objects.settings import PodSettings
from hajob.runtime.settings import Settings
from tests.unit.objects.test_built_pods import Object, example

OURS = {"install", "agent", "coordinator"}


def pods(settings: PodSettings, *jobs: HATrainingJob) -> list[Object]:
    return [pod for job in jobs for pod in (rank_pod(job, 0, 1, settings), coordinator_pod(job, 1, settings))]


def ours(pod: Object) -> list[Object]:
    found = [each for each in pod["spec"]["initContainers"] if each["name"] in OURS]
    assert len(found) == 2
    return found


def with_pod_user(user: int) -> HATrainingJob:
    job = example("quickstart")
    job.spec.template["spec"]["securityContext"] = {"runAsUser": user}
    return job


def test_injected_containers_are_restricted() -> None:
    for pod in pods(PodSettings("image"), example("quickstart"), example("full"), with_pod_user(1000)):
        for container in ours(pod):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["readOnlyRootFilesystem"] is True
            assert context["runAsNonRoot"] is True
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_a_pod_that_is_root_by_its_template_can_still_start() -> None:
    for pod in pods(PodSettings("image"), with_pod_user(0)):
        assert [each["securityContext"]["runAsNonRoot"] for each in ours(pod)] == [False, False]


def test_an_installation_says_how_the_sidecar_is_pulled_and_run() -> None:
    settings = Settings.from_environment(
        {
            "HAJOB_SIDECAR_IMAGE": "example/sidecar:1",
            "HAJOB_SIDECAR_IMAGE_PULL_POLICY": "Always",
            "HAJOB_SIDECAR_PULL_SECRETS": "one, two",
            "HAJOB_SIDECAR_RESOURCES": '{"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}',
            "HAJOB_SIDECAR_SECURITY_CONTEXT": '{"runAsUser": 1000, "runAsNonRoot": true}',
        }
    ).pod_settings()
    job = example("quickstart")
    job.spec.template["spec"]["imagePullSecrets"] = [{"name": "users"}, {"name": "one"}]
    for pod in pods(settings, job):
        assert [each["name"] for each in pod["spec"]["imagePullSecrets"]] == ["users", "one", "two"]
        for container in ours(pod):
            assert (container["image"], container["imagePullPolicy"]) == ("example/sidecar:1", "Always")
            assert container["resources"] == {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
            assert container["securityContext"]["runAsUser"] == 1000
            assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_a_jobs_own_resources_of_the_agent_count_more() -> None:
    job = example("quickstart", agent={"resources": {"requests": {"cpu": "3"}}})
    pod = rank_pod(job, 0, 1, PodSettings("image", resources={"requests": {"cpu": "1"}}))
    found = {each["name"]: each["resources"]["requests"]["cpu"] for each in ours(pod)}
    assert found == {"install": "1", "agent": "3"}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HAJOB_SIDECAR_IMAGE_PULL_POLICY", "Sometimes"),
        ("HAJOB_SIDECAR_RESOURCES", "cpu=1"),
        ("HAJOB_SIDECAR_SECURITY_CONTEXT", "[1]"),
    ],
)
def test_a_setting_that_cannot_be_read_ends_the_start(variable: str, value: Any) -> None:
    with pytest.raises(SystemExit, match=variable):
        Settings.from_environment({variable: value})


def in_the_nodes_network(name: str, **spec: Any) -> HATrainingJob:
    job = example(name, **spec)
    job.spec.template["spec"]["hostNetwork"] = True
    return job


def ports_of(pod: Object) -> dict[str, int]:
    (main,) = [each for each in pod["spec"]["containers"] if each["name"] in {"trainer", "controller"}]
    return {each["name"]: each["hostPort"] for each in main.get("ports", [])}


def test_in_the_nodes_network_a_pod_declares_its_ports() -> None:
    job = in_the_nodes_network("quickstart", network={"mindIOPort": 8100})
    rank, coordinator = pods(PodSettings("image"), job)
    assert ports_of(rank) == {"agent": 7071, "mindio": 8100, "rendezvous": 29500}
    assert ports_of(coordinator) == {"coordinator": 7070, "mindio": 8100, "rendezvous": 29500}


def test_in_a_network_of_its_own_a_pod_declares_nothing() -> None:
    assert [ports_of(pod) for pod in pods(PodSettings("image"), example("quickstart"))] == [{}, {}]
