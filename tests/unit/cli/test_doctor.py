"""`kubectl hajob doctor`: what is wrong with an installation or a job, and what to do, with and without an operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from hajob.api.conditions import Reason
from hajob.cli import doctor, main
from hajob.cli.cluster import ClusterError
from release.generate.crd_schema import custom_resource_definition, quarantine_definition
from tests.unit.sources import hardware_objects as objects
from tests.unit.sources.hostile_objects import CASES

LEASE = "/apis/coordination.k8s.io/v1/namespaces/hajob-system/leases/hajob-operator"
FAULTS = "/api/v1/namespaces/hajob-system/pods/hajob-operator-abc:8080/proxy/faults"
MAPS = "/api/v1/namespaces/kube-system/configmaps?labelSelector=mx-consumer-cim%3Dtrue"
NODES = "/api/v1/nodes"
QUARANTINES = "/apis/training.hajob.io/v1alpha1/nodequarantines"
JOBS = "/apis/training.hajob.io/v1alpha1/hatrainingjobs"
JOB = "/apis/training.hajob.io/v1alpha1/namespaces/team/hatrainingjobs/qwen"
PODS = "/api/v1/namespaces/team/pods?labelSelector=training.hajob.io/job-name%3Dqwen"
CRDS_MADE = (custom_resource_definition(), quarantine_definition())
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def chip_node(name: str = "node-1", **more: Any) -> dict[str, Any]:
    made = objects.node(name, **more)
    made["status"]["capacity"] = {"huawei.com/Ascend910": "8"}
    return made


def lease(age: int = 0, holder: str = "hajob-operator-abc_01234567") -> dict[str, Any]:
    renewed = datetime.fromtimestamp(objects.NOW_MS / 1000 - age, UTC).isoformat()
    return {"spec": {"holderIdentity": holder, "renewTime": renewed}}


def conditions(**told: str) -> list[dict[str, str]]:
    """`Type="Status/Reason"`."""
    return [
        {"type": kind, "status": one.partition("/")[0], "reason": one.partition("/")[2], "message": f"about {kind}"}
        for kind, one in told.items()
    ]


def job(recoverability: Any = (), **told: str) -> dict[str, Any]:
    status = {"conditions": conditions(**told), "recoverability": list(recoverability)}
    return {"metadata": {"name": "qwen", "namespace": "team", "uid": "uid-job"}, "status": status}


class Cluster:
    """Objects by path; lists by path and selector; errors where one stands."""

    def __init__(self, **changed: Any) -> None:
        self.found: dict[str, Any] = {
            LEASE: lease(),
            FAULTS: {"held": "", "complete": True},
            MAPS: {"items": [objects.device_info()]},
            NODES: {"items": [chip_node()]},
            **{f"{CRDS}/{crd['metadata']['name']}": crd for crd in CRDS_MADE},
        }
        self.found.update(changed)

    def find(self, path: str) -> dict[str, Any] | None:
        found = self.found.get(path)
        if isinstance(found, ClusterError):
            raise found
        return found

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        raise AssertionError("doctor writes nothing")

    replace = patch = create

    def delete(self, path: str) -> None:
        raise AssertionError("doctor writes nothing")


def ask(cluster: Cluster, *words: str) -> tuple[int, list[dict[str, str]]]:
    said: list[Any] = []
    arguments = main.parser().parse_args(["doctor", *words, "-o", "json"])
    code = doctor.carry_out(arguments, cluster, objects.NOW_MS, said.append)
    return code, json.loads(said[0])["findings"]


def problems(found: list[dict[str, str]]) -> list[str]:
    return [one["about"] for one in found if one["grade"] == "problem"]


def about(found: list[dict[str, str]], subject: str) -> dict[str, str]:
    (one,) = [one for one in found if one["about"] == subject]
    return one


# ------------------------------------------------------------------------------------------------------ a cluster


def test_a_sound_cluster_has_nothing_to_do() -> None:
    well = objects.device_info(objects.fault(level="NotHandleFault"), unhealthy="")
    code, found = ask(Cluster(**{MAPS: {"items": [well]}}))
    assert (code, problems(found)) == (0, [])
    assert about(found, "operator")["message"] == "hajob-operator-abc_01234567 leads"
    assert "device info 1, switch info 0" in about(found, "sources")["message"]


@pytest.mark.parametrize(
    ("changed", "subject", "words"),
    [
        ({LEASE: None}, "operator", "its Lease has no holder"),
        ({LEASE: lease(age=60)}, "operator", "renewed its Lease 60 s ago"),
        (
            {f"{CRDS}/hatrainingjobs.training.hajob.io": None},
            "CRD",
            "hatrainingjobs.training.hajob.io is not installed",
        ),
        (
            {FAULTS: {"held": "4 of 10 nodes were reported faulty", "complete": True}},
            "breaker",
            "4 of 10 nodes were reported faulty",
        ),
        ({MAPS: {"items": []}}, "sources", "1 of 1 nodes with chips have no mindx-dl-deviceinfo: node-1"),
        ({JOBS: {"items": [job(Accepted="False/PodRefused")]}}, "job team/qwen", "about Accepted"),
    ],
)
def test_what_is_wrong_in_a_cluster_is_said(changed: dict[str, Any], subject: str, words: str) -> None:
    code, found = ask(Cluster(**changed))
    told = [one for one in found if one["about"] == subject and one["grade"] == "problem"]
    assert code == 1
    assert words in told[0]["message"]
    assert told[0]["do"]


def test_an_older_crd_is_named_by_what_it_lacks() -> None:
    older = json.loads(json.dumps(custom_resource_definition()))
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del schema["spec"]["properties"]["recovery"]
    _, found = ask(Cluster(**{f"{CRDS}/hatrainingjobs.training.hajob.io": older}))
    assert "it lacks spec.recovery" in about(found, "CRD")["message"]


def test_rejected_objects_are_counted_by_reason() -> None:
    edited = objects.device_info()
    edited["data"]["DeviceInfoCfg"] = edited["data"]["DeviceInfoCfg"].replace("RestartBusiness", "NotHandleFault")
    _, found = ask(Cluster(**{MAPS: {"items": [edited, edited]}}))
    told = about(found, "rejected: CheckCodeMismatch")
    assert told["message"].startswith("ConfigMap mindx-dl-deviceinfo-node-1: ")
    assert told["message"].endswith(" and 1 more")


def test_faults_and_quarantines_are_listed() -> None:
    spec = {"nodeName": "node-1", "source": "Operator", "reason": "ChipFault"}
    kept_out = {"metadata": {"name": "node-1"}, "spec": spec, "status": {"state": "Active"}}
    code, found = ask(Cluster(**{QUARANTINES: {"items": [kept_out]}}))
    assert "80E01801" in about(found, "fault on node-1")["message"]
    assert about(found, "quarantine of node-1")["do"] == "kubectl hajob quarantine release node-1"
    assert code == 0, "what Hajob has dealt with is no problem of the installation"


def test_writers_that_are_silent_are_named() -> None:
    old = objects.device_info(updated=objects.NOW_MS // 1000 - 3600)
    code, found = ask(Cluster(**{MAPS: {"items": [old]}}))
    told = [one["message"] for one in found if one["about"] == "sources" and one["grade"] == "problem"]
    assert code == 1
    assert "mindx-dl-deviceinfo-node-1: last written 60 min ago" in told[0]


def test_without_an_operator_the_objects_are_read_all_the_same() -> None:
    held = {JOBS: {"items": [job(Held="True/BreakerOpen")]}}
    _, found = ask(Cluster(**{LEASE: None, **held}))
    assert "80E01801" in about(found, "fault on node-1")["message"]
    assert about(found, "breaker")["message"] == "open: about Held"


def test_what_may_not_be_read_is_said_and_the_rest_looked_at() -> None:
    forbidden = ClusterError("nodes is forbidden")
    code, found = ask(Cluster(**{NODES: forbidden, FAULTS: ClusterError("pods/proxy is forbidden")}))
    assert about(found, "not looked at")["message"] == "nodes is forbidden"
    assert any("pods/proxy is forbidden" in one["message"] for one in found)
    assert code == 0


def test_hostile_objects_are_findings_like_others() -> None:
    hostile = [case.raw for case in CASES]
    strange: list[Any] = [None, {"kind": "Pod"}, {"kind": "Node", "metadata": [], "status": 1, "spec": "x"}]
    cluster = Cluster(**{
        MAPS: {"items": [raw for raw in hostile if raw.get("kind") == "ConfigMap"]},
        NODES: {"items": [raw for raw in (*hostile, *strange) if isinstance(raw, dict) and raw.get("kind") == "Node"]},
        QUARANTINES: {"items": [{"metadata": None, "spec": 3, "status": []}]},
        JOBS: {"items": [{"metadata": {"name": "x"}, "status": {"conditions": ["x", {"type": 3, "status": {}}]}}]},
    })  # fmt: skip
    code, found = ask(cluster)
    assert code == 1
    assert {one["about"] for one in found} >= {"rejected: Malformed", "rejected: CheckCodeMismatch"}
    assert all(len(one["message"]) < 2000 for one in found)


def test_the_admins_settings_count_and_are_checked() -> None:
    data = {"conditions": "NPULost: SeparateNPU", "senders": "a", "beaker": "{}"}
    settings = {"/api/v1/namespaces/hajob-system/configmaps/hajob-faults": {"data": data}}
    _, found = ask(Cluster(**settings, **{NODES: {"items": [chip_node(NPULost="True")]}}))
    assert any(one["about"] == "fault on node-1" and "NPULost" in one["message"] for one in found)
    assert "data.beaker" in about(found, "rejected: UnknownObject")["message"]


# ---------------------------------------------------------------------------------------------------------- a job

UNMET = [
    {"action": "Replace", "status": "False", "unmet": [{"name": "FreeNode", "message": "no free node"}]},
    {"action": "Shrink", "status": "Unknown", "unmet": [{"name": "DistributedOptimizer", "message": "not visible"}]},
    {"action": "Retry", "status": "Unknown", "unmet": [{"name": "DistributedOptimizer", "message": "not visible"}]},
    {"action": "InPlace", "status": "True", "unmet": []},
]


def test_a_job_is_told_what_is_unprotected_and_what_to_do() -> None:
    cluster = Cluster(**{JOB: job(UNMET, Accepted="True/Valid", Recoverable="False/PreconditionsUnmet")})
    code, found = ask(cluster, "qwen", "-n", "team")
    assert (code, problems(found)) == (1, ["FreeNode", "protection"])
    assert about(found, "FreeNode")["message"] == "Replace: no free node"
    assert "Keep a node free" in about(found, "FreeNode")["do"]
    unknown = about(found, "DistributedOptimizer")
    assert (unknown["grade"], unknown["message"]) == ("note", "Shrink, Retry: not visible")
    assert "--use-distributed-optimizer" in unknown["do"]
    assert about(found, "protection")["message"] == (
        "works now: InPlace; no known obstacle: Shrink, Retry; would not work: Replace"
    )


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ({"Accepted": "False/PodRefused"}, ["Accepted=False/PodRefused"]),
        ({"Scheduled": "False/WaitingForCapacity"}, ["Scheduled=False/WaitingForCapacity"]),
        ({"CoordinatorReady": "False/ControllerNotStarted"}, ["CoordinatorReady=False/ControllerNotStarted"]),
        ({"CoordinatorReady": "False/Starting"}, []),
        ({"CoordinatorReady": "False/TakingOver"}, []),
        ({"Recoverable": "False/CopiesNotRegistered"}, ["Recoverable=False/CopiesNotRegistered"]),
        ({"SparesReady": "False/NotCreated"}, ["SparesReady=False/NotCreated"]),
        ({"SparesReady": "False/AfterStart"}, []),
        ({"Degraded": "True/OfANewerVersion"}, ["Degraded=True/OfANewerVersion"]),
        ({"Degraded": "True/ProtectionMissing"}, ["Degraded=True/ProtectionMissing"]),
        ({"Failed": "True/NotRecovered", "CoordinatorReady": "False/Unreachable"}, ["Failed=True/NotRecovered"]),
        ({"Complete": "True/AllRanksFinished", "Scheduled": "False/PodsPending"}, []),
    ],
)
def test_conditions_of_a_job_are_graded(told: dict[str, str], wrong: list[str]) -> None:
    _, found = ask(Cluster(**{JOB: job(**told)}), "qwen", "-n", "team")
    assert problems(found) == wrong


@pytest.mark.parametrize("told", [{"SparesReady": "False/Pending"}, {"Shrunk": "True/FewerDataParallelRanks"}])
def test_what_is_only_smaller_is_noted_with_a_remedy(told: dict[str, str]) -> None:
    code, found = ask(Cluster(**{JOB: job(**told)}), "qwen", "-n", "team")
    (one,) = [one for one in found if one["about"].partition("=")[0] in told]
    assert (code, one["grade"], bool(one["do"])) == (0, "note", True)


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason.remedy], ids=lambda reason: reason.word)
def test_a_bad_reason_is_answered_with_its_remedy(reason: Reason) -> None:
    told = {reason.type.value: f"{reason.status}/{reason.word}"}
    _, found = ask(Cluster(**{JOB: job(**told)}), "qwen", "-n", "team")
    assert about(found, f"{reason.type}={reason.status}/{reason.word}")["do"] == reason.remedy


def test_pods_of_the_job_say_where_faults_stand() -> None:
    pod = objects.pod()
    owner = {"apiVersion": "training.hajob.io/v1alpha1", "kind": "HATrainingJob", "uid": "uid-job", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    pod["status"]["containerStatuses"] = [{"name": "trainer", "state": {"waiting": waiting}}]
    nodes = {NODES: {"items": [chip_node(unschedulable=True)]}}
    _, found = ask(Cluster(**{JOB: job(), PODS: {"items": [pod]}, **nodes}), "qwen", "-n", "team")
    assert "no such image" in about(found, "pod job-1")["message"]
    assert any(one["about"] == "fault on node-1" and "80E01801" in one["message"] for one in found)
    assert "being drained" in about(found, "node node-1")["message"]


def test_a_job_without_an_operator_has_an_old_status() -> None:
    _, found = ask(Cluster(**{JOB: job(), LEASE: None}), "qwen", "-n", "team")
    assert "what the last one wrote" in about(found, "operator")["message"]


def test_a_job_that_is_not_there_is_said() -> None:
    with pytest.raises(ClusterError, match="no HATrainingJob qwen in namespace team"):
        ask(Cluster(), "qwen", "-n", "team")


def test_the_text_names_what_to_do_below() -> None:
    said: list[Any] = []
    arguments = main.parser().parse_args(["doctor"])
    assert doctor.carry_out(arguments, Cluster(**{LEASE: None}), objects.NOW_MS, said.append) == 1
    place = next(number for number, line in enumerate(said) if "no holder" in line)
    assert said[place].startswith("problem  operator")
    assert said[place + 1].strip().startswith("-> ")


def test_without_a_namespace_the_one_of_the_context_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "KubernetesObjects", lambda context: Cluster(**{JOB: job()}))
    monkeypatch.setattr(doctor, "KubernetesCluster", lambda context: SimpleNamespace(namespace="team"), raising=False)
    main.main(["doctor", "qwen"])
    assert capsys.readouterr().err == ""
