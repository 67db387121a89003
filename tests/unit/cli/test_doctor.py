"""`kubectl hajob doctor`: what is wrong with an installation or a job, and what to do, with and without an operator."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from hajob.api.conditions import Reason
from hajob.app.settings import Settings
from hajob.cli import doctor, main
from hajob.cli.cluster import ClusterError, ForbiddenError
from hajob.cli.diagnosis import Look
from release.generate.crd_schema import custom_resource_definition, quarantine_definition
from tests.rigs import hardware_objects as objects
from tests.rigs.hostile_objects import CASES

LEASE = "/apis/coordination.k8s.io/v1/namespaces/hajob-system/leases/hajob-operator"
FAULTS = "/api/v1/namespaces/hajob-system/pods/hajob-operator-abc:8080/proxy/faults"
MAPS = "/api/v1/namespaces/kube-system/configmaps?labelSelector=mx-consumer-cim%3Dtrue"
NODES = "/api/v1/nodes"
QUARANTINES = "/apis/training.hajob.io/v1alpha1/nodequarantines"
DEPLOYMENTS = "/apis/apps/v1/deployments"
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

    def find_object(self, path: str) -> dict[str, Any] | None:
        found = self.found.get(path)
        if isinstance(found, ClusterError):
            raise found
        return found

    def create_object(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        raise AssertionError("doctor writes nothing")

    replace_object = patch_object = create_object

    def delete_object(self, path: str) -> None:
        raise AssertionError("doctor writes nothing")


def ask(cluster: Cluster, *words: str) -> tuple[int, list[dict[str, str]]]:
    said: list[Any] = []
    arguments = main.build_parser().parse_args(["doctor", *words, "-o", "json"])
    code = doctor.diagnose_and_print(arguments, cluster, objects.NOW_MS, said.append)
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
        ({MAPS: {"items": []}}, "sources", "nodes with chips that have no mindx-dl-deviceinfo: 1 of 1, node-1"),
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


def test_what_may_not_be_read_is_unknown_in_one_line() -> None:
    """As a user with `view` in a namespace meets it."""
    paths = [
        LEASE,
        NODES,
        JOBS,
        QUARANTINES,
        MAPS,
        DEPLOYMENTS,
        *(path for path in Cluster().found if path.startswith(CRDS)),
    ]
    code, found = ask(Cluster(**{path: ForbiddenError(f"{path} is forbidden: User cannot") for path in paths}))
    told = about(found, "rights")
    assert (code, told["grade"]) == (0, "unknown")
    expected = "more rights are needed for 6 of 8 checks: CRDs, the operator's Lease, faults of nodes"
    assert told["message"].startswith(expected)
    assert "what is missing is to get customresourcedefinitions; to get leases in hajob-system; to " in told["message"]
    assert "list hatrainingjobs in all namespaces" in told["message"]
    assert [one for one in found if one["about"] != "rights"] == [], "neither fine nor a problem"


def test_components_of_mindcluster_are_named_with_what_follows() -> None:
    main = {
        "image": "clusterd:v6",
        "command": ["/bin/bash", "-c", "--"],
        "args": ["/usr/local/bin/clusterd -logLevel=0"],
    }
    clusterd = {
        "metadata": {"name": "clusterd", "namespace": "mindx-dl"},
        "spec": {"template": {"spec": {"containers": [main]}}},
    }
    _, found = ask(Cluster(**{DEPLOYMENTS: {"items": [clusterd]}}))
    told = [one["message"] for one in found if one["about"] == "beside"]
    assert told[0].startswith("NodeD was not found")
    assert told[1].startswith("ClusterD (mindx-dl/clusterd) redundant")


def test_what_may_be_read_is_looked_at_all_the_same() -> None:
    code, found = ask(Cluster(**{NODES: ForbiddenError("no"), FAULTS: ClusterError("the server is ill")}))
    assert "1 of 9 checks" in about(found, "rights")["message"]
    assert about(found, "the leader's report")["message"] == "could not be read: the server is ill"
    assert about(found, "operator")["grade"] == "ok"
    assert "80E01801" in about(found, "fault on node-1")["message"], "a fault that may be read is one"
    assert code == 0


def test_without_the_leaders_report_the_breaker_is_told() -> None:
    away = {FAULTS: ForbiddenError("no")}
    assert not [one for one in ask(Cluster(**away))[1] if one["about"] == "breaker"]
    held = {JOBS: {"items": [job(Held="False/NotHeld")]}}
    assert about(ask(Cluster(**away, **held))[1], "breaker")["grade"] == "ok"


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
        ({"Degraded": "True/MoveFailed"}, ["Degraded=True/MoveFailed"]),
        ({"Failed": "True/NotRecovered", "CoordinatorReady": "False/Unreachable"}, ["Failed=True/NotRecovered"]),
        ({"Complete": "True/AllRanksFinished", "Scheduled": "False/PodsPending"}, []),
    ],
)
def test_conditions_of_a_job_are_graded(told: dict[str, str], wrong: list[str]) -> None:
    _, found = ask(Cluster(**{JOB: job(**told)}), "qwen", "-n", "team")
    assert problems(found) == wrong


def since(seconds: int) -> str:
    return datetime.fromtimestamp(objects.NOW_MS / 1000 - seconds, UTC).isoformat()


def lived(
    running: str = "True/Training",
    *,
    since_s: int = 7200,
    step_s: int = 60,
    generations: tuple[int, int] = (2, 2),
    **more: Any,
) -> dict[str, Any]:
    """A job of four nodes with the Running condition as it is since so many seconds, and a step as old."""
    made = job(Accepted="True/Valid", Running=running)
    made["metadata"] |= {"generation": generations[1], "creationTimestamp": since(86_400)}
    made["spec"] = {"numNodes": 4}
    made["status"]["conditions"][1]["lastTransitionTime"] = since(since_s)
    progress = {"step": 5, "observedTime": since(step_s)}
    made["status"] |= {"observedGeneration": generations[0], "progress": progress, **more}
    return made


def rank_pods(*phases: str, **metadata: Any) -> dict[str, Any]:
    owner = {"apiVersion": "training.hajob.io/v1alpha1", "kind": "HATrainingJob", "uid": "uid-job", "controller": True}
    made = []
    for number, phase in enumerate(phases):
        pod = objects.pod()
        pod["metadata"] |= {"name": f"qwen-{number}", "ownerReferences": [owner], **metadata}
        pod["metadata"]["labels"] |= {"training.hajob.io/node-rank": str(number)}
        pod["status"]["phase"] = phase
        made.append(pod)
    return {PODS: {"items": made}}


ALL = ("Running",) * 4
CAUSE = {"cause": {"code": "SIGKILL", "message": "rank 2 was killed"}}


@pytest.mark.parametrize(
    ("raw", "pods", "wrong", "words"),
    [
        (lived(), ALL, [], ""),
        (lived("False/Restarting", since_s=60), ALL, [], ""),
        (lived("False/Suspended", since_s=86_400), (), [], ""),
        (lived("False/Starting", since_s=1200), ALL, ["training"], "not trained for 20 min, Starting: about Running"),
        (lived(generations=(1, 2)), ALL, ["status"], "generation 1 of the spec, which is at 2"),
        (lived(step_s=3600), ALL, ["training"], "step 5 is the newest, and 60 min old"),
        (lived(restarts={"infrastructure": 10}), ALL, [], ""),
        (
            lived(since_s=30, restarts={"infrastructure": 9, "program": 1}, incidents=[CAUSE]),
            ALL,
            ["restarts"],
            "restarted 10 times (infrastructure 9, program 1), the newest cause: SIGKILL rank 2 was killed",
        ),
        (lived(), (*ALL[:2], "Succeeded", "Failed"), ["pod qwen-2", "pod qwen-3", "pods"], "is over (Succeeded)"),
        (lived(), ALL[:3], ["pods"], "3 of 4 rank pods are there"),
        (lived("True/Finishing"), ("Running", "Succeeded", "Succeeded"), [], ""),
        (lived("True/Finishing"), ("Running", "Failed"), ["pod qwen-1"], "the pod has failed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_absence_and_standing_still_are_no_health(
    raw: dict[str, Any], pods: tuple[str, ...], wrong: list[str], words: str
) -> None:
    _, found = ask(Cluster(**{JOB: raw, **rank_pods(*pods)}), "qwen", "-n", "team")
    assert problems(found) == wrong
    assert not words or any(words in one["message"] for one in found)
    noted = [one for one in found if one["grade"] == "note" and one["about"] in {"training", "status"}]
    assert bool([one for one in found if one["about"] == "conditions"]) == (not wrong and not noted)


def test_a_status_never_written_is_a_problem_in_time() -> None:
    raw = {"metadata": {"name": "qwen", "namespace": "team", "creationTimestamp": since(5)}}
    assert about(ask(Cluster(**{JOB: raw}), "qwen", "-n", "team")[1], "status")["grade"] == "note"
    raw["metadata"]["creationTimestamp"] = since(600)
    _, found = ask(Cluster(**{JOB: raw, JOBS: {"items": [raw]}}), "qwen", "-n", "team")
    assert about(found, "status")["message"] == "no operator has written it yet; the job is 10 min old"
    assert (
        "no operator has written it" in about(ask(Cluster(**{JOBS: {"items": [raw]}}))[1], "job team/qwen")["message"]
    )


def test_a_pod_that_does_not_go_is_named_with_who_holds_it() -> None:
    going = rank_pods(*ALL, deletionTimestamp=since(300), finalizers=["example.com/wait"])
    _, found = ask(Cluster(**{JOB: lived("False/Restarting", since_s=290), **going}), "qwen", "-n", "team")
    assert about(found, "pod qwen-0")["message"] == "should have been gone for 5 min, finalizers: example.com/wait"


def test_pods_that_may_not_be_listed_are_not_missing() -> None:
    _, found = ask(Cluster(**{JOB: lived(), PODS: ForbiddenError("no")}), "qwen", "-n", "team")
    assert problems(found) == []
    assert "to list pods in team" in about(found, "rights")["message"]


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
    arguments = main.build_parser().parse_args(["doctor"])
    assert doctor.diagnose_and_print(arguments, Cluster(**{LEASE: None}), objects.NOW_MS, said.append) == 1
    place = next(number for number, line in enumerate(said) if "no holder" in line)
    assert said[place].startswith("problem  operator")
    assert said[place + 1].strip().startswith("-> ")


def test_without_a_namespace_the_one_of_the_context_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class InTeam(Cluster):
        namespace = "team"

    monkeypatch.setattr(doctor, "KubernetesObjects", lambda context: InTeam(**{JOB: job()}))
    main.main(["doctor", "qwen"])
    assert capsys.readouterr().err == ""


# ------------------------------------------------------------------------------------- a cluster of processes


class Leader(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"held": f"asked for {self.path}", "complete": True}).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "absent"])
def test_a_leader_on_this_machine_is_asked_directly(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    server = HTTPServer(("127.0.0.1", 0), Leader)
    threading.Thread(target=server.handle_request, daemon=True).start()
    monkeypatch.setattr(doctor, "Settings", lambda: Settings(metrics_port=server.server_port))
    pod = FAULTS.partition(":")[0]
    refusal = ClusterError(f"GET {pod}: address not allowed")
    changed: dict[str, Any] = {f"{pod}:{server.server_port}/proxy/faults": refusal, pod: {"status": {"podIP": address}}}
    if address == "absent":
        del changed[pod]
    gathered = doctor.Gatherer(Cluster(**changed), objects.NOW_MS).gather_everything("hajob-system", ["kube-system"])
    server.server_close()
    if address == "127.0.0.1":
        assert gathered.report == {"held": "asked for /faults", "complete": True}
        return
    (unread,) = gathered.unread[Look.REPORT]
    said = "does not proxy to 10.0.0.1" if address == "10.0.0.1" else "there is no pod hajob-operator-abc"
    assert said in unread.problem
