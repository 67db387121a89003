"""The environment of a container, from every source a pod can name."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from e2e.nodes.environment import (
    PodFacts,
    ReferenceMissingError,
    References,
    container_variables,
    object_variables,
    references,
)

POD: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "uid": "u-1",
        "labels": {"app.kubernetes.io/name": "hajob", "x": "1"},
        "annotations": {"note": 'a "b"'},
    },
    "spec": {
        "nodeName": "node-1",
        "serviceAccountName": "robot",
        "containers": [{"name": "other", "resources": {"limits": {"cpu": "1500m", "memory": "2Gi"}}}],
    },
}
FACTS = PodFacts(POD, "127.9.1.2", "127.9.1.1", {"cpu": "8", "memory": "32Gi"})
FOUND = References({"cm": {"k": "v", "L": "low"}}, {"s": {"p": "secret"}})
SERVICES = {"KUBERNETES_SERVICE_HOST": "127.9.0.1"}


def variables(container: dict[str, Any], found: References = FOUND) -> dict[str, str]:
    return container_variables({"name": "c", **container}, FACTS, found, SERVICES)


def from_field(path: str) -> str:
    return variables({"env": [{"name": "V", "valueFrom": {"fieldRef": {"fieldPath": path}}}]})["V"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app.kubernetes.io/name']", "hajob"),
        ("metadata.labels['absent']", ""),
        ("metadata.annotations['note']", 'a "b"'),
        ("spec.nodeName", "node-1"),
        ("spec.serviceAccountName", "robot"),
        ("status.podIP", "127.9.1.2"),
        ("status.podIPs", "127.9.1.2"),
        ("status.hostIP", "127.9.1.1"),
        ("metadata.annotations", 'note="a \\"b\\""'),
    ],
)
def test_fields_of_the_pod(path: str, value: str) -> None:
    assert from_field(path) == value


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(ReferenceMissingError, match=r"unsupported fieldPath: spec\.wrong"):
        from_field("spec.wrong")


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ({"resource": "limits.cpu", "containerName": "other"}, "2"),
        ({"resource": "limits.cpu", "containerName": "other", "divisor": "1m"}, "1500"),
        ({"resource": "limits.memory", "containerName": "other", "divisor": "1Mi"}, "2048"),
        ({"resource": "limits.cpu"}, "8"),
        ({"resource": "requests.cpu"}, "0"),
        ({"resource": "limits.memory", "divisor": "0"}, str(32 * 2**30)),
    ],
)
def test_resources(reference: dict[str, str], value: str) -> None:
    got = variables({"env": [{"name": "V", "valueFrom": {"resourceFieldRef": reference}}]})
    assert got["V"] == value


def test_literals_see_what_came_before_and_services() -> None:
    got = variables(
        {
            "env": [
                {"name": "A", "value": "$(B)$(KUBERNETES_SERVICE_HOST)"},
                {"name": "B", "value": "b"},
                {"name": "C", "value": "$(B)$(A)"},
                {"name": "N"},
            ]
        }
    )
    assert got["A"] == "$(B)127.9.0.1"
    assert got["C"] == "b$(B)127.9.0.1"
    assert got["N"] == ""


def test_env_wins_over_env_from_and_can_use_it() -> None:
    got = variables(
        {
            "envFrom": [{"configMapRef": {"name": "cm"}, "prefix": "P_"}, {"secretRef": {"name": "s"}}],
            "env": [{"name": "p", "value": "mine"}, {"name": "U", "value": "$(P_k)"}],
        }
    )
    assert (got["P_k"], got["p"], got["U"]) == ("v", "mine", "v")


def test_keys_of_config_maps_and_secrets() -> None:
    got = variables(
        {
            "env": [
                {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}},
                {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "p"}}},
                {"name": "O", "valueFrom": {"secretKeyRef": {"name": "none", "key": "p", "optional": True}}},
            ],
            "envFrom": [{"configMapRef": {"name": "none", "optional": True}}],
        }
    )
    assert (got["K"], got["S"]) == ("v", "secret")
    assert "O" not in got


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"envFrom": [{"secretRef": {"name": "none"}}]}, 'secret "none" not found'),
        (
            {"env": [{"name": "V", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "z"}}}]},
            "couldn't find key z in configmap ns/cm",
        ),
        (
            {"env": [{"name": "V", "valueFrom": {"secretKeyRef": {"name": "none", "key": "z"}}}]},
            'secret "none" not found',
        ),
    ],
)
def test_what_is_missing_is_said_as_a_kubelet_says_it(container: dict[str, Any], message: str) -> None:
    with pytest.raises(ReferenceMissingError) as raised:
        variables(container)
    assert str(raised.value) == message


def test_references_are_found() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "b"}}],
        "env": [
            {"name": "V", "valueFrom": {"secretKeyRef": {"name": "c", "key": "k"}}},
            {"name": "W", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
    }
    assert references(container) == {("configmap", "a"), ("secret", "b"), ("secret", "c")}


def test_objects_are_decoded() -> None:
    encoded = base64.b64encode(b"x").decode()
    assert object_variables("secret", {"data": {"a": encoded}}) == {"a": "x"}
    assert object_variables("configmap", {"data": {"a": "y"}, "binaryData": {"b": encoded}}) == {"a": "y", "b": "x"}
    assert object_variables("configmap", {}) == {}
