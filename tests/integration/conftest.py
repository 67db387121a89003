"""What several integration tests need on the control plane: the CRD, and jobs to try it with."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.rest import ApiError
from e2e.harness.fixtures import a_namespace
from hajob.api import constants as names

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "quickstart.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def crd(control_plane: ControlPlane) -> dict[str, Any]:
    """The CRD, installed and served; as the server keeps it."""
    control_plane.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{names.PLURAL}.{names.GROUP}"

    def served() -> bool:
        found = control_plane.api.get(path)
        conditions = {c["type"]: c["status"] for c in (found.get("status") or {}).get("conditions") or []}
        if conditions.get("Established") != "True":
            return False
        try:
            control_plane.api.get(collection("default"))  # empty: tests have their jobs elsewhere
        except ApiError:  # for a moment the server still prepares its storage
            return False
        return True

    control_plane.wait("the CRD to be served", served)
    return control_plane.api.get(path)


@pytest.fixture
def where(control_plane: ControlPlane) -> Iterator[str]:
    """The namespace of the test's jobs, another one than its operator's."""
    with a_namespace(control_plane, f"jobs-{secrets.token_hex(4)}") as name:
        yield name


@pytest.fixture
def job(control_plane: ControlPlane, where: str) -> Iterator[dict[str, Any]]:
    """The job of the README under a name of its own; change it as you like, it is deleted after the test."""
    body = deepcopy(QUICKSTART)
    name = f"job-{secrets.token_hex(4)}"
    body["metadata"] |= {"name": name, "namespace": where}
    yield body
    control_plane.api.delete(f"{collection(where)}/{name}")


def collection(namespace: str) -> str:
    """Path of the HATrainingJobs of a namespace."""
    return f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"
