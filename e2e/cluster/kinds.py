"""Kinds of other projects on the local cluster, for what stands in for their controllers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.cluster.control_plane import ControlPlane

Object = dict[str, Any]
ANYTHING: Final[Object] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def build_kind(
    api_version: str,
    kind: str,
    plural: str,
    properties: Mapping[str, Object],
    *,
    is_namespaced: bool,
    has_status_subresource: bool = False,
) -> Object:
    """Build the CRD of a kind with these properties."""
    group, _, version = api_version.partition("/")
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}} if has_status_subresource else {},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            # The API server asks for one where a group's name ends as Kubernetes' own do.
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in on a test's own cluster"},
        },
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "scope": "Namespaced" if is_namespaced else "Cluster",
            "versions": [served],
        },
    }


def install_kinds(plane: ControlPlane, definitions: Iterable[Object], api_version: str, plurals: Iterable[str]) -> None:
    """Apply CRDs, and wait until the API server serves those of this version that are named."""
    plane.apply_server_side(*definitions)
    for plural in plurals:
        path = f"/apis/{api_version}/{plural}"
        plane.wait(f"the API server to serve {plural}", partial(plane.api.find, path))


def read_objects(directory: Path, pattern: str = "*.yaml") -> list[Object]:
    """Read all objects in the files of a directory."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(directory.glob(pattern)))
    return [one for text in texts for one in yaml.safe_load_all(text) if one]
