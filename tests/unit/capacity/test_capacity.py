"""Nodes are counted as the scheduler would see them: a node of another pool is no replacement."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import yaml

from hajob.api import constants as names
from hajob.api.job import HATrainingJob
from hajob.api.spec import HATrainingJobSpec
from hajob.capacity.nodes import Capacity
from hajob.plan.policy import layout_from_spec
from hajob.pods.coordinator_pod import coordinator_pod
from hajob.pods.rank_pod import build_rank_pod
from hajob.pods.settings import PodSettings
from hajob.sources.node import NodeView, Taint, node_view_of
from hajob.sources.pod import ForeignPod, PodView, view_of_foreign_pod
from hajob.sources.pod import pod_view_of as pod_view
from tests.rigs.capacity import NODE_WITH_TWO_CHIPS, QUICKSTART, demand_of, pod_of_this_operator, quickstart_spec

TAINT = Taint("reserved", "NoSchedule", "others")


def is_free(node: NodeView, job: HATrainingJobSpec, *pods: PodView | ForeignPod) -> bool:
    return set(Capacity.from_nodes_and_pods([node], pods).free_nodes(demand_of(job))) == {node.name}


@pytest.mark.parametrize(
    ("changes", "free"),
    [
        ({}, True),
        ({"ready": False}, False),
        ({"unschedulable": True}, False),
        ({"chips": {names.DEFAULT_RESOURCE_NAME: 1}}, False),
        ({"chips": None}, False),
        ({"taints": (TAINT,)}, False),
        ({"taints": (replace(TAINT, effect="NoExecute"),)}, False),
        ({"taints": (replace(TAINT, effect="PreferNoSchedule"),)}, True),
    ],
)
def test_what_a_node_says(changes: dict[str, Any], free: bool) -> None:
    assert is_free(replace(NODE_WITH_TWO_CHIPS, **changes), quickstart_spec()) is free


CHIPS = {"resources": {"limits": {names.DEFAULT_RESOURCE_NAME: "2"}}}


def somebodys(phase: str = "Running", node: str = "node", **spec: Any) -> ForeignPod | None:
    """A pod of another tenant."""
    body = {"nodeName": node, "containers": [{"name": "main", **CHIPS}], **spec}
    return view_of_foreign_pod(
        {"metadata": {"namespace": "b", "name": "theirs"}, "spec": body, "status": {"phase": phase}}
    )


def test_chips_of_other_tenants_are_taken() -> None:
    theirs = somebodys()
    assert theirs is not None
    assert not is_free(NODE_WITH_TWO_CHIPS, quickstart_spec(), theirs)
    assert is_free(replace(NODE_WITH_TWO_CHIPS, chips={names.DEFAULT_RESOURCE_NAME: 4}), quickstart_spec(), theirs)


@pytest.mark.parametrize(
    "pod",
    [
        somebodys("Succeeded"),
        somebodys("Failed"),
        somebodys(node=""),
        somebodys(containers=[{"name": "main", "resources": {"requests": {"cpu": "64"}}}]),
    ],
)
def test_pods_that_occupy_nothing_are_not_kept(pod: PodView | None) -> None:
    assert pod is None


def listens(*ports: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": "main", "ports": list(ports)}]


ON_THE_HOST = quickstart_spec(hostNetwork=True)
OF_THE_TEMPLATE = quickstart_spec(
    containers=[{"name": "trainer", "ports": [{"containerPort": 5000, "hostPort": 9100, "hostIP": "10.0.0.1"}]}]
)
PORT_CASES = [
    (ON_THE_HOST, {"containers": listens({"containerPort": 80, "hostPort": 8000})}, False),
    (ON_THE_HOST, {"containers": listens({"containerPort": 80, "hostPort": 8001})}, True),
    (ON_THE_HOST, {"containers": listens({"containerPort": 80, "hostPort": 8000, "protocol": "UDP"})}, True),
    (ON_THE_HOST, {"containers": listens({"containerPort": 80, "hostPort": 8000, "hostIP": "10.0.0.1"})}, False),
    (ON_THE_HOST, {"containers": listens({"containerPort": 8000})}, True),
    (ON_THE_HOST, {"containers": listens({"containerPort": 8000}), "hostNetwork": True}, False),
    (ON_THE_HOST, {"initContainers": listens({"containerPort": 80, "hostPort": 8000})}, True),
    (quickstart_spec(), {"containers": listens({"containerPort": 80, "hostPort": 8000})}, True),
    (OF_THE_TEMPLATE, {"containers": listens({"containerPort": 80, "hostPort": 9100})}, False),
    (OF_THE_TEMPLATE, {"containers": listens({"containerPort": 80, "hostPort": 9100, "hostIP": "10.0.0.2"})}, True),
    (OF_THE_TEMPLATE, {"containers": listens({"containerPort": 80, "hostPort": 9100, "hostIP": "0.0.0.0"})}, False),
]


@pytest.mark.parametrize(("job", "theirs", "free"), PORT_CASES)
def test_ports_of_the_node_are_taken_by_whoever_has_them(
    job: HATrainingJobSpec, theirs: dict[str, Any], *, free: bool
) -> None:
    pod = somebodys(**{"containers": [], **theirs})
    assert is_free(NODE_WITH_TWO_CHIPS, job, *([pod] if pod is not None else [])) is free


def test_a_port_is_free_again_when_its_pod_is_gone() -> None:
    pod = somebodys(containers=listens({"containerPort": 80, "hostPort": 8000}))
    assert pod is not None
    capacity = Capacity.from_nodes_and_pods([NODE_WITH_TWO_CHIPS], [pod])
    assert not capacity.has_other_tenants("node")
    assert set(capacity.free_nodes(demand_of(ON_THE_HOST))) == set()
    capacity.remove_pod(pod.key)
    assert set(capacity.free_nodes(demand_of(ON_THE_HOST))) == {"node"}


def test_pods_on_the_host_have_the_ports_of_the_demand() -> None:
    raw = yaml.safe_load(QUICKSTART.read_text())
    raw["metadata"] |= {"namespace": "default", "uid": "uid-1"}
    raw["spec"]["template"]["spec"]["hostNetwork"] = True
    job = HATrainingJob.from_object(raw)
    pod = pod_view(build_rank_pod(job, 0, 1, PodSettings("hajob/sidecar:dev")))
    assert set(pod.ports) == set(demand_of(ON_THE_HOST).ports)
    assert len(pod.ports) == 3
    coordinator = pod_view(coordinator_pod(job, 1, PodSettings("hajob/sidecar:dev")))
    assert len(coordinator.ports) == 3


def test_a_finished_rank_pod_occupies_nothing() -> None:
    body = {
        "metadata": {"name": "r", "namespace": "a"},
        "spec": {"nodeName": "node", "containers": [{"name": "trainer", **CHIPS}]},
        "status": {"phase": "Running"},
    }
    capacity = Capacity.from_nodes_and_pods([NODE_WITH_TWO_CHIPS], [pod_view(body)])
    assert set(capacity.free_nodes(demand_of(quickstart_spec()))) == set()
    body["status"] = {"phase": "Succeeded"}
    capacity.store_pod(pod_view(body))
    assert set(capacity.free_nodes(demand_of(quickstart_spec()))) == {"node"}


def test_init_containers_and_sidecars_count_once() -> None:
    pod = somebodys(initContainers=[{"name": "first", **CHIPS}], containers=[{"name": "main", **CHIPS}])
    assert pod is not None
    assert pod.requests == ((names.DEFAULT_RESOURCE_NAME, 2),)


AFFINITY_CASES = [
    ([{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", "c"]}]}], True),
    ([{"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["a"]}]}], False),
    ([{"matchExpressions": [{"key": "gone", "operator": "Exists"}]}], False),
    ([{"matchExpressions": [{"key": "gone", "operator": "DoesNotExist"}]}], True),
    ([{"matchExpressions": [{"key": "rack", "operator": "Gt", "values": ["0"]}]}], True),
    ([{"matchExpressions": [{"key": "rack", "operator": "Lt", "values": ["1"]}]}], False),
    ([{"matchExpressions": [{"key": "pool", "operator": "Gt", "values": ["0"]}]}], False),
    ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node"]}]}], True),
    ([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node"]}]}], False),
    ([{}, {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}], True),
    ([{}], False),
]


@pytest.mark.parametrize(("terms", "free"), AFFINITY_CASES)
def test_what_a_node_affinity_asks_for(terms: list[dict[str, Any]], free: bool) -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    assert is_free(NODE_WITH_TWO_CHIPS, quickstart_spec(affinity={"nodeAffinity": required})) is free


def test_a_job_gets_no_second_pod_on_one_of_its_nodes() -> None:
    wide = [replace(NODE_WITH_TWO_CHIPS, name=f"wide-{n}", chips={names.DEFAULT_RESOURCE_NAME: 8}) for n in range(3)]
    pods = [pod_of_this_operator("r", "wide-0"), pod_of_this_operator("c", "wide-1", names.ROLE_COORDINATOR)]
    capacity = Capacity.from_nodes_and_pods(wide, pods)
    assert capacity.count_free_for(demand_of(quickstart_spec()), "uid-1", {"wide-0", "wide-1"}) == 1
    assert capacity.count_free_for(demand_of(quickstart_spec()), "uid-2", set()) == 3


def test_what_is_kept_is_what_would_be_counted() -> None:
    """After any row of events, what is kept event by event equals what a fresh look finds."""
    chance = random.Random(7)
    jobs = [quickstart_spec(), quickstart_spec(nodeSelector={"pool": "a"}), quickstart_spec(excluded=("node-3",))]
    capacity, pods = Capacity(), dict[str, PodView]()
    for _ in range(2000):
        name = f"node-{chance.randrange(6)}"
        match chance.randrange(4):
            case 0:
                labels = {"pool": chance.choice("ab")}
                cordoned = chance.random() < 0.2
                node = replace(
                    NODE_WITH_TWO_CHIPS, name=name, ready=chance.random() < 0.8, labels=labels, unschedulable=cordoned
                )
                capacity.store_node(node)
            case 1:
                capacity.remove_node(name)
            case 2:
                pod = replace(
                    pod_of_this_operator(f"p{chance.randrange(9)}", name), phase=chance.choice(["Running", "Failed"])
                )
                pods[pod.key] = pod
                capacity.store_pod(pod)
            case 3 if pods:
                capacity.remove_pod(pods.popitem()[0])
        job = demand_of(chance.choice(jobs))
        fresh = Capacity.from_nodes_and_pods(capacity.nodes.values(), pods.values())
        assert set(capacity.free_nodes(job)) == set(fresh.free_nodes(job))
        assert capacity.not_ready == fresh.not_ready
        assert capacity.to_be_emptied == {node.name for node in capacity.nodes.values() if node.unschedulable}
        homes = {pod.node_name for pod in pods.values() if pod.phase == "Running"}
        left = Capacity.from_nodes_and_pods(capacity.nodes.values(), []).free_nodes(job)
        assert capacity.soon_free_nodes(job, "uid-1") == (homes & left) - fresh.free_nodes(job)


def test_what_the_job_asks_for() -> None:
    assert is_free(NODE_WITH_TWO_CHIPS, quickstart_spec(nodeSelector={"pool": "a"}))
    assert not is_free(NODE_WITH_TWO_CHIPS, quickstart_spec(nodeSelector={"pool": "a", "rack": "2"}))
    assert not is_free(NODE_WITH_TWO_CHIPS, quickstart_spec(excluded=("node",)))


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "reserved", "operator": "Equal", "value": "others", "effect": "NoSchedule"}, True),
        ({"key": "reserved", "value": "others"}, True),
        ({"key": "reserved", "value": "us"}, False),
        ({"key": "reserved", "operator": "Exists"}, True),
        ({"key": "reserved", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "else", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({"value": "others"}, False),
    ],
)
def test_taints_that_a_job_tolerates(toleration: dict[str, str], tolerated: bool) -> None:
    tainted = replace(NODE_WITH_TWO_CHIPS, taints=(TAINT,))
    assert is_free(tainted, quickstart_spec(tolerations=[toleration])) is tolerated


def test_a_node_as_kubernetes_has_it() -> None:
    taints = [
        {"key": "reserved", "effect": "NoSchedule", "value": "others"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
    ]
    seen = node_view_of({"metadata": {"name": "node", "labels": {"pool": "a"}}, "spec": {"taints": taints}})
    assert (seen.labels, seen.taints, seen.ready) == ({"pool": "a"}, (TAINT,), False)


def test_needed_avoided_nodes_are_taken_longest_avoided_first() -> None:
    nodes = [replace(NODE_WITH_TWO_CHIPS, name=f"node-{number}") for number in range(6)]
    nodes.append(replace(NODE_WITH_TWO_CHIPS, name="node-9", ready=False))
    job = quickstart_spec(nodeSelector={"pool": "a"})
    layout = layout_from_spec(job)

    def avoided(*names: str) -> set[str]:
        return Capacity.from_nodes_and_pods(nodes, []).nodes_to_avoid(demand_of(job), "uid-1", layout.num_nodes, names)

    assert avoided("node-2", "node-0") == {"node-0", "node-2", "node-9"}
    assert avoided("node-2", "node-0", "node-1") == {"node-0", "node-1", "node-9"}
    assert avoided("node-2", "node-9", "node-0", "node-1", "node-3") == {"node-1", "node-3", "node-9"}
    nodes[4] = replace(nodes[4], labels={"pool": "b"})
    assert avoided("node-2", "node-0") == {"node-0", "node-9"}, "a node of another pool helps nobody"
    assert avoided("node-4", "node-2", "node-0") == {"node-0", "node-4", "node-9"}


def test_a_jobs_own_nodes_count_for_its_restart() -> None:
    nodes = [replace(NODE_WITH_TWO_CHIPS, name=f"node-{number}") for number in range(5)]
    job, taken = quickstart_spec(), [pod_of_this_operator(f"r{number}", f"node-{number}") for number in range(4)]
    capacity = Capacity.from_nodes_and_pods(nodes, taken)
    assert capacity.nodes_to_avoid(demand_of(job), "uid-1", 4, ["node-1"]) == {"node-1"}
    assert capacity.nodes_to_avoid(demand_of(job), "uid-1", 4, ["node-1", "node-2"]) == {"node-2"}
    assert capacity.nodes_to_avoid(demand_of(job), "uid-1", 5, ["node-1", "node-2"]) == set()
