"""Deployments and DaemonSets as the doctor reads them, of which any field may be missing. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hajob.sources.reading import items, mapping, name_of_object, text


def place_of_object(raw: Mapping[str, Any]) -> str:
    """Return namespace and name of an object."""
    return f"{text(mapping(raw.get('metadata')).get('namespace'))}/{name_of_object(raw)}"


def containers_of_workload(raw: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """Yield the containers of a workload's pods; None: there is no such workload."""
    pod = mapping(mapping(mapping(mapping(raw).get("spec")).get("template")).get("spec"))
    return map(mapping, items(pod.get("containers")))


def is_switched_on(workload: Mapping[str, Any] | None, variable: str) -> bool:
    """Return whether a container of a workload has an environment variable that is true."""
    entries = (mapping(entry) for one in containers_of_workload(workload) for entry in items(one.get("env")))
    return any(one.get("name") == variable and text(one.get("value")).lower() == "true" for one in entries)
