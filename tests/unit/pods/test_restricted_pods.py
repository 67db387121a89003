"""Hajob's own containers pass Pod Security `restricted`, and an installation can change what it must."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.api.job import HATrainingJob
from hajob.app.settings import Settings
from hajob.pods.coordinator_pod import coordinator_pod
from hajob.pods.rank_pod import build_rank_pod
from hajob.pods.settings import PodSettings
from tests.rigs.example_jobs import Object, example_in_the_nodes_network, example_job

OURS = {"install", "agent", "coordinator"}


def pods(settings: PodSettings, *jobs: HATrainingJob) -> list[Object]:
    return [pod for job in jobs for pod in (build_rank_pod(job, 0, 1, settings), coordinator_pod(job, 1, settings))]


def ours(pod: Object) -> list[Object]:
    found = [each for each in pod["spec"]["initContainers"] if each["name"] in OURS]
    assert len(found) == 2
    return found


def with_pod_user(user: int) -> HATrainingJob:
    job = example_job("quickstart")
    job.spec.template["spec"]["securityContext"] = {"runAsUser": user}
    return job


def test_injected_containers_are_restricted() -> None:
    for pod in pods(PodSettings("image"), example_job("quickstart"), example_job("full"), with_pod_user(1000)):
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
    job = example_job("quickstart")
    job.spec.template["spec"]["imagePullSecrets"] = [{"name": "users"}, {"name": "one"}]
    for pod in pods(settings, job):
        assert [each["name"] for each in pod["spec"]["imagePullSecrets"]] == ["users", "one", "two"]
        for container in ours(pod):
            assert (container["image"], container["imagePullPolicy"]) == ("example/sidecar:1", "Always")
            assert container["resources"] == {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
            assert container["securityContext"]["runAsUser"] == 1000
            assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_a_jobs_own_resources_of_the_agent_count_more() -> None:
    job = example_job("quickstart", agent={"resources": {"requests": {"cpu": "3"}}})
    pod = build_rank_pod(job, 0, 1, PodSettings("image", resources={"requests": {"cpu": "1"}}))
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


def ports_of(pod: Object) -> dict[str, int]:
    (main,) = [each for each in pod["spec"]["containers"] if each["name"] in {"trainer", "controller"}]
    return {each["name"]: each["hostPort"] for each in main.get("ports", [])}


def told(pod: Object, name: str) -> dict[str, str]:
    """Every port in the environment of a sidecar."""
    (container,) = [each for each in pod["spec"]["initContainers"] if each["name"] == name]
    return {
        each["name"].removeprefix("HAJOB_").removesuffix("_PORT"): each["value"]
        for each in container["env"]
        if each["name"].endswith("_PORT")
    }


def test_in_the_nodes_network_a_pod_declares_its_ports() -> None:
    rank, coordinator = pods(PodSettings("image"), example_in_the_nodes_network("quickstart"))
    assert ports_of(rank) == {"agent": 7071, "mindio": 8000, "rendezvous": 29500}
    assert ports_of(coordinator) == {"coordinator": 7070, "controller": 7072, "store": 7073}


def test_in_the_nodes_network_a_job_has_ports_of_its_own() -> None:
    network = {"agentPort": 7181, "coordinatorPort": 7180, "mindIOPort": 7182, "rendezvousPort": 7184}
    rank, coordinator = pods(PodSettings("image"), example_in_the_nodes_network("quickstart", network=network))
    assert ports_of(rank) == {"agent": 7181, "mindio": 7182, "rendezvous": 7184}
    assert ports_of(coordinator) == {"coordinator": 7180, "controller": 7183, "store": 7185}


def test_every_process_is_told_where_it_listens() -> None:
    network = {"agentPort": 7181, "coordinatorPort": 7180, "mindIOPort": 8100, "rendezvousPort": 29600}
    for job, opened in (
        (example_job("quickstart", network=network), ("8100", "29600")),
        (example_in_the_nodes_network("quickstart", network=network), ("7182", "7183")),
    ):
        rank, coordinator = pods(PodSettings("image"), job)
        assert told(rank, "agent") == {"AGENT": "7181", "MINDIO": "8100", "RENDEZVOUS": "29600"}
        assert told(coordinator, "coordinator") == {
            "COORDINATOR": "7180",
            "AGENT": "7181",
            "MINDIO": opened[0],
            "RENDEZVOUS": opened[1],
        }


def test_in_a_network_of_its_own_a_pod_takes_no_port_of_the_node() -> None:
    rank, coordinator = pods(PodSettings("image"), example_job("quickstart"))
    (trainer,), (controller,) = rank["spec"]["containers"], coordinator["spec"]["containers"]
    assert "ports" not in trainer
    assert controller["ports"] == [
        {"name": "coordinator", "containerPort": 7070},
        {"name": "controller", "containerPort": 8000},
        {"name": "store", "containerPort": 29500},
    ]
