"""The NetworkPolicies in deploy/ let through what Hajob's parts say to each other, and nothing of strangers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
import yaml

from e2e.bootstrap.paths import CHECKOUT
from hajob.api.derived import coordinator_ports
from hajob.pods.coordinator_pod import coordinator_pod
from hajob.pods.rank_pod import build_rank_pod
from hajob.pods.settings import PodSettings
from tests.rigs.example_jobs import Object, example_job

POLICIES = list(yaml.safe_load_all((CHECKOUT / "deploy/network-policies.yaml").read_text()))
SETTINGS = PodSettings("image")
HOME = "hajob-system"


def deployment() -> Object:
    objects = yaml.safe_load_all((CHECKOUT / "deploy/hajob.yaml").read_text())
    return next(each for each in objects if each["kind"] == "Deployment")


def pods() -> dict[str, tuple[str, dict[str, str]]]:
    """Namespace and labels of each kind of pod."""
    job = example_job("quickstart")
    made = {"rank": build_rank_pod(job, 0, 1, SETTINGS), "coordinator": coordinator_pod(job, 1, SETTINGS)}
    found = {role: ("jobs", pod["metadata"]["labels"]) for role, pod in made.items()}
    found["operator"] = (HOME, deployment()["spec"]["template"]["metadata"]["labels"])
    found["stranger"] = ("jobs", {"app": "shell"})
    found["stranger there"] = (HOME, {"app": "shell"})
    found["namesake"] = ("elsewhere", found["operator"][1])
    return found


def chosen(selector: Object | None, labels: dict[str, str]) -> bool:
    return selector is None or (selector.get("matchLabels") or {}).items() <= labels.items()


def may(peer: str, to: str, port: int) -> bool:
    """What a network that enforces the policies would say."""
    namespace, labels = pods()[to]
    rules = [
        rule
        for policy in POLICIES
        if policy["metadata"]["namespace"] == namespace and chosen(policy["spec"]["podSelector"], labels)
        for rule in policy["spec"]["ingress"]
    ]
    return any(_comes_from(rule, peer, namespace) and port in _ports(rule, port) for rule in rules)


def _ports(rule: Object, any_port: int) -> list[int]:
    return [each["port"] for each in rule.get("ports", [{"port": any_port}])]


def _comes_from(rule: Object, peer: str, namespace: str) -> bool:
    theirs, labels = pods()[peer]
    return "from" not in rule or any(_is_peer(each, theirs, labels, namespace) for each in rule["from"])


def _is_peer(given: Object, namespace: str, labels: dict[str, str], own: str) -> bool:
    there = (
        chosen(given["namespaceSelector"], {"kubernetes.io/metadata.name": namespace})
        if "namespaceSelector" in given
        else namespace == own
    )
    return there and chosen(given.get("podSelector"), labels)


OTHER_PORTS: Final = {"agentPort": 7171, "coordinatorPort": 7170, "mindIOPort": 8100, "rendezvousPort": 29600}


def conversations() -> Iterator[tuple[str, str, int]]:
    for job in (example_job("quickstart"), example_job("quickstart", network=OTHER_PORTS)):
        ports = coordinator_ports(job.spec)
        yield "operator", "coordinator", ports.coordinator
        yield "coordinator", "rank", job.spec.network.agent_port
        yield "rank", "coordinator", ports.controller
        yield "rank", "coordinator", ports.store
    yield "rank", "rank", 40000  # HCCL and gloo choose
    yield "stranger there", "operator", 8080  # Prometheus


@pytest.mark.parametrize(("peer", "to", "port"), list(conversations()))
def test_what_hajob_says_is_let_through(peer: str, to: str, port: int) -> None:
    assert may(peer, to, port)


@pytest.mark.parametrize("peer", ["stranger", "stranger there", "namesake"])
@pytest.mark.parametrize(("to", "port"), [("coordinator", 7070), ("coordinator", 8000), ("rank", 7071), ("rank", 8000)])
def test_strangers_are_not(peer: str, to: str, port: int) -> None:
    assert not may(peer, to, port)


def test_the_operators_port_is_the_one_it_serves() -> None:
    (container,) = deployment()["spec"]["template"]["spec"]["containers"]
    assert [each["containerPort"] for each in container["ports"]] == [8080]
