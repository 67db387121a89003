"""The environment of a container: literals, fields of the pod, resources, ConfigMaps and Secrets.

Pure: whoever calls brings the objects. A reference to something that does not exist yet is an exception with
Kubernetes' own sentence, because it becomes the message of a waiting container.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from e2e.nodes.config import JsonObject
from e2e.nodes.expansion import expand
from e2e.nodes.quantity import whole

_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class ReferenceMissingError(Exception):
    """Something a container refers to is not there (yet)."""


@dataclass(frozen=True)
class PodFacts:
    """What the downward API can tell: the pod object and what only its node knows.

    ``allocatable`` is the node's, for resources a container sets no limit for.
    """

    pod: JsonObject
    pod_address: str
    host_address: str
    allocatable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class References:
    """The ConfigMaps and Secrets that were found, each as name → decoded values."""

    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def values(self, kind: str, name: str) -> Mapping[str, str] | None:
        """The values of the object, or None when it was not found."""
        return (self.secrets if kind == "secret" else self.config_maps).get(name)


def references(container: JsonObject) -> set[tuple[str, str]]:
    """Every ``(kind, name)`` the environment of ``container`` refers to; kind is ``configmap`` or ``secret``."""
    found: set[tuple[str, str]] = set()
    for source in container.get("envFrom") or []:
        for kind, key in (("configmap", "configMapRef"), ("secret", "secretRef")):
            if key in source:
                found.add((kind, source[key].get("name", "")))
    for entry in container.get("env") or []:
        origin = entry.get("valueFrom") or {}
        for kind, key in (("configmap", "configMapKeyRef"), ("secret", "secretKeyRef")):
            if key in origin:
                found.add((kind, origin[key].get("name", "")))
    return found


def field_value(facts: PodFacts, path: str) -> str:
    """The value of a ``fieldRef``.

    Raises:
        ReferenceMissingError: Kubernetes knows no such field.
    """
    metadata = facts.pod["metadata"]
    if subscript := _SUBSCRIPT.fullmatch(path):
        return str((metadata.get(subscript[1]) or {}).get(subscript[2], ""))
    if path in {"metadata.labels", "metadata.annotations"}:
        entries = metadata.get(path.removeprefix("metadata.")) or {}
        return "\n".join(f'{key}="{_escaped(value)}"' for key, value in sorted(entries.items()))
    spec = facts.pod["spec"]
    simple = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.podIP": facts.pod_address,
        "status.podIPs": facts.pod_address,
        "status.hostIP": facts.host_address,
        "status.hostIPs": facts.host_address,
    }
    if path not in simple:
        raise ReferenceMissingError(f"unsupported fieldPath: {path}")
    return str(simple[path])


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_value(facts: PodFacts, container: JsonObject, reference: JsonObject) -> str:
    """The value of a ``resourceFieldRef``: a container without a limit gets the node's allocatable."""
    named = reference.get("containerName")
    if named:
        spec = facts.pod["spec"]
        everybody = [*spec["containers"], *(spec.get("initContainers") or [])]
        container = next((other for other in everybody if other["name"] == named), container)
    kind, _, resource = reference["resource"].partition(".")
    resources = container.get("resources") or {}
    amount = (resources.get(kind) or {}).get(resource)
    if amount is None and kind == "limits":
        amount = facts.allocatable.get(resource)
    return str(whole(amount or 0, reference.get("divisor") or 1))


def container_variables(
    container: JsonObject, facts: PodFacts, found: References, services: Mapping[str, str]
) -> dict[str, str]:
    """The variables a container's spec asks for, on top of ``services`` (what every container gets), expanded.

    Raises:
        ReferenceMissingError: a ConfigMap, a Secret or a key that is not optional is not there.
    """
    variables: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        variables.update(_from_source(source, found))
    for entry in container.get("env") or []:
        value = _entry_value(entry, container, facts, found, {**services, **variables})
        if value is not None:
            variables[entry["name"]] = value
    return {**services, **variables}


def _from_source(source: JsonObject, found: References) -> dict[str, str]:
    kind, key = ("secret", "secretRef") if "secretRef" in source else ("configmap", "configMapRef")
    reference = source.get(key) or {}
    values = found.values(kind, reference.get("name", ""))
    if values is None:
        if reference.get("optional"):
            return {}
        raise ReferenceMissingError(f'{kind} "{reference.get("name", "")}" not found')
    return {source.get("prefix", "") + name: value for name, value in values.items()}


def _entry_value(
    entry: JsonObject, container: JsonObject, facts: PodFacts, found: References, known: Mapping[str, str]
) -> str | None:
    origin = entry.get("valueFrom")
    if not origin:
        return expand(entry.get("value") or "", known)
    if "fieldRef" in origin:
        return field_value(facts, origin["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in origin:
        return resource_value(facts, container, origin["resourceFieldRef"])
    for kind, key in (("configmap", "configMapKeyRef"), ("secret", "secretKeyRef")):
        if key in origin:
            return _key_value(kind, origin[key], facts, found)
    raise ReferenceMissingError(f"environment variable {entry['name']}: unsupported valueFrom {sorted(origin)}")


def _key_value(kind: str, reference: JsonObject, facts: PodFacts, found: References) -> str | None:
    name, key = reference.get("name", ""), reference["key"]
    values = found.values(kind, name)
    if values is not None and key in values:
        return values[key]
    if reference.get("optional"):
        return None
    if values is None:
        raise ReferenceMissingError(f'{kind} "{name}" not found')
    where = facts.pod["metadata"]["namespace"]
    raise ReferenceMissingError(f"couldn't find key {key} in {kind} {where}/{name}")


def object_files(kind: str, body: JsonObject) -> dict[str, bytes]:
    """The entries of a ConfigMap or Secret object as bytes."""
    if kind == "secret":
        return {key: base64.b64decode(value) for key, value in (body.get("data") or {}).items()}
    files = {key: value.encode() for key, value in (body.get("data") or {}).items()}
    files.update({key: base64.b64decode(value) for key, value in (body.get("binaryData") or {}).items()})
    return files


def object_variables(kind: str, body: JsonObject) -> dict[str, str]:
    """The entries of a ConfigMap or Secret object as text, as an environment needs them."""
    return {key: value.decode("utf-8", "replace") for key, value in object_files(kind, body).items()}
