"""What of Kueue's configuration and queues would break a job, as the doctor says it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from hajob.api.base import Json
from hajob.cli.diagnosis import Grade
from hajob.cli.kueue_diagnosis import KueueObjects, findings_of_kueue

JOB: Json = {"metadata": {"namespace": "t", "name": "job", "labels": {"kueue.x-k8s.io/queue-name": "q"}}}
KNOWN = "HATrainingJob.v1alpha1.training.hajob.io"


def operator(served: str = "true") -> Json:
    container = {"env": [{"name": "HAJOB_KUEUE_ENABLED", "value": served}]}
    return {"spec": {"template": {"spec": {"containers": [container]}}}}


def local_queue(name: str = "q", cluster_queue: str = "cq") -> Json:
    return {"metadata": {"namespace": "t", "name": name}, "spec": {"clusterQueue": cluster_queue}}


def cluster_queue(*covered: str, **spec: Any) -> Json:
    group = {"coveredResources": list(covered), "flavors": [{"name": "a2"}]}
    usual = {"resourceGroups": [group], "namespaceSelector": {}}
    return {"metadata": {"name": "cq"}, "spec": {**usual, **spec}}


ALL = ("cpu", "memory", "huawei.com/Ascend910")


def check(controller: str) -> Json:
    return {"metadata": {"name": "budget"}, "spec": {"controllerName": controller}}


def configuration(**content: Any) -> Json:
    return {"data": {"controller_manager_config.yaml": yaml.safe_dump(content)}}


SOUND: dict[str, Any] = {
    "local_queues": [local_queue()],
    "cluster_queues": [cluster_queue("cpu", "memory", "huawei.com/Ascend910")],
    "flavors": [{"metadata": {"name": "a2"}, "spec": {}}],
    "configuration": configuration(integrations={"frameworks": ["pod"], "externalFrameworks": [KNOWN]}),
}


def told(
    pods: list[Json] | None = None, served: str = "true", job: Json | None = None, **gathered: Any
) -> list[tuple[Grade, str]]:
    found = findings_of_kueue(KueueObjects(**{**SOUND, **gathered}), operator(served), [job or JOB], pods or [])
    return [(one.grade, one.message) for one in found]


def test_a_sound_queue_is_only_told() -> None:
    assert told() == [(Grade.FINE, "is installed, with 1 LocalQueue, and this operator serves jobs of it")]


@pytest.mark.parametrize(
    ("gathered", "words"),
    [
        ({"local_queues": []}, "there is no LocalQueue q in t"),
        ({"cluster_queues": []}, "ClusterQueue cq, which does not exist"),
        ({"cluster_queues": [cluster_queue(*ALL, stopPolicy="Hold")]}, "ClusterQueue cq is stopped (Hold)"),
        (
            {"local_queues": [{**local_queue(), "spec": {"clusterQueue": "cq", "stopPolicy": "Hold"}}]},
            "LocalQueue q is",
        ),
        ({"cluster_queues": [cluster_queue("cpu", "memory")]}, "does not cover huawei.com/Ascend910"),
        ({"cluster_queues": [cluster_queue(*ALL, namespaceSelector=None)]}, "does not serve namespace t"),
        (
            {"cluster_queues": [cluster_queue(*ALL, namespaceSelector={"matchLabels": {"team": "a"}})]},
            "does not serve namespace t",
        ),
        (
            {
                "cluster_queues": [
                    cluster_queue(*ALL, admissionChecksStrategy={"admissionChecks": [{"name": "budget"}]})
                ],
                "checks": [check("kueue.x-k8s.io/multikueue")],
            },
            "sends jobs to other clusters",
        ),
        (
            {
                "cluster_queues": [
                    {
                        **cluster_queue(*ALL),
                        "status": {"conditions": [{"type": "Active", "status": "False", "message": "FlavorNotFound"}]},
                    }
                ]
            },
            "is not active, and admits nobody: FlavorNotFound",
        ),
        (
            {"configuration": configuration(manageJobsWithoutQueueName=True, integrations={"frameworks": ["pod"]})},
            "has manageJobsWithoutQueueName",
        ),
        (
            {
                "configuration": configuration(
                    integrations={"externalFrameworks": [KNOWN]},
                    resources={
                        "transformations": [
                            {"input": "huawei.com/Ascend910", "strategy": "Replace", "outputs": {"credits": 4}}
                        ]
                    },
                )
            },
            "does not cover credits",
        ),
        ({"cluster_queues": [cluster_queue("huawei.com/Ascend910")]}, "does not cover cpu and memory, which"),
        ({"flavors": [{"metadata": {"name": "a2"}, "spec": {"topologyName": "racks"}}]}, "has topologyName racks"),
        (
            {"local_queues": [local_queue(), local_queue("default")], "configuration": configuration(integrations={})},
            "has a LocalQueue named default",
        ),
    ],
)
def test_what_would_break_a_job_is_a_problem(gathered: dict[str, Any], words: str) -> None:
    problems = [message for grade, message in told(**gathered) if grade is Grade.PROBLEM]
    assert len(problems) == 1
    assert words in problems[0]


@pytest.mark.parametrize(
    "gathered",
    [
        {
            "cluster_queues": [cluster_queue("huawei.com/Ascend910")],
            "configuration": configuration(resources={"excludeResourcePrefixes": ["cpu", "memory"]}),
        },
        {
            "cluster_queues": [cluster_queue("huawei.com/Ascend910")],
            "configuration": configuration(resources={"quotaCheckStrategy": "IgnoreUndeclared"}),
        },
        {"local_queues": [local_queue(), local_queue("default")]},
        {
            "cluster_queues": [
                cluster_queue(*ALL, namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "t"}})
            ]
        },
        {
            "cluster_queues": [
                cluster_queue(
                    *ALL,
                    namespaceSelector={"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]},
                    admissionChecksStrategy={"admissionChecks": [{"name": "budget"}]},
                )
            ],
            "checks": [check("example.com/budget")],
            "namespaces": [{"metadata": {"name": "t", "labels": {"team": "a"}}}],
        },
        {
            "local_queues": [local_queue(), local_queue("default")],
            "configuration": configuration(
                managedJobsNamespaceSelector={
                    "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["t"]}]
                }
            ),
        },
        {
            "local_queues": [local_queue(), local_queue("default")],
            "configuration": configuration(integrations={"frameworks": ["batch/job"]}),
        },
    ],
)
def test_what_its_configuration_leaves_out_is_no_problem(gathered: dict[str, Any]) -> None:
    assert [grade for grade, _ in told(**gathered)] == [Grade.FINE]


def test_what_is_not_known_is_not_said_to_be_well() -> None:
    found = told(
        local_queues=[local_queue(), local_queue("default")],
        cluster_queues=[cluster_queue("huawei.com/Ascend910")],
        configuration=None,
    )
    assert [grade for grade, _ in found[1:]] == [Grade.UNKNOWN, Grade.UNKNOWN]


def test_a_queued_job_without_kueue_is_a_problem() -> None:
    assert [grade for grade, _ in told(local_queues=None)] == [Grade.PROBLEM]
    assert "never started" in told(served="false")[1][1]


def test_a_pod_that_kueue_has_taken_is_named() -> None:
    pod: Json = {"metadata": {"name": "job-0"}, "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}}
    assert told([pod])[-1] == (
        Grade.PROBLEM,
        "has the gate kueue.x-k8s.io/admission: Kueue has taken it for a job of its own, and holds it",
    )


def test_a_limit_on_the_start_of_pods_is_noted() -> None:
    found = told(configuration=configuration(waitForPodsReady={"timeout": "3m"}))
    assert found[1] == (Grade.NOTE, "waitForPodsReady evicts a job whose pods do not all run within 3m")
    assert len(told(configuration=configuration(waitForPodsReady={"enable": False}))) == 1


@pytest.mark.parametrize("damage", [{"data": {"controller_manager_config.yaml": "a: ["}}, {"data": 3}, {}])
def test_a_damaged_configuration_is_not_known(damage: Json) -> None:
    assert told(configuration=damage)[0][0] is Grade.FINE


@pytest.mark.parametrize("known", [True, False])
def test_a_job_without_a_queue_is_taken_by_default(known: bool) -> None:
    job = {"metadata": {"namespace": "t", "name": "job"}}
    integrations = {"externalFrameworks": [KNOWN] if known else []}
    found = told(
        job=job,
        local_queues=[local_queue(), local_queue("default")],
        configuration=configuration(integrations=integrations),
    )
    words = "the job names no queue" if known else "Kueue does not know HATrainingJobs"
    assert [words in message for grade, message in found if grade is Grade.PROBLEM] == [True]
    assert [grade for grade, _ in told(job=job)] == [Grade.FINE]


def test_a_webhook_that_refuses_pods_is_named() -> None:
    message = 'Internal error occurred: failed calling webhook "mpod.kb.io": context deadline exceeded'
    status = {"conditions": [{"type": "Scheduled", "status": "False", "message": message}]}
    assert told(job={**JOB, "status": status})[1:] == [(Grade.PROBLEM, f"its pods are refused by a webhook: {message}")]


def test_an_older_kueue_is_told_apart_from_none() -> None:
    assert "does not serve kueue.x-k8s.io/v1beta2" in told(local_queues=None, is_old=True)[0][1]


def test_chips_that_nobody_counts_are_noted() -> None:
    excluded = configuration(
        integrations={"externalFrameworks": [KNOWN]}, resources={"excludeResourcePrefixes": ["huawei.com/"]}
    )
    ((grade, message),) = told(configuration=excluded)[1:]
    assert grade is Grade.NOTE
    assert message.startswith("Kueue does not count huawei.com/Ascend910")


def test_limits_on_starts_are_told_whole() -> None:
    late = {"timeout": "3m", "blockAdmission": True, "requeuingStrategy": {"backoffLimitCount": 2}}
    found = told(configuration=configuration(waitForPodsReady=late))
    assert "deactivates it after 2 such evictions" in found[1][1]
    assert "blockAdmission" in found[2][1]
