"""What several integration tests need on the control plane: the CRD, and jobs to try it with."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.rest import ApiError
from e2e.harness.fixtures import a_namespace
from hajob.api import constants as names
from tests.rigs.jobs_on_server import QUICKSTART, ServedNamespace, path_of_jobs


@pytest.fixture(scope="session")
def crd(control_plane: ControlPlane) -> dict[str, Any]:
    """The CRD, installed and served; as the server keeps it."""
    control_plane.kubectl("apply", "--server-side", "-f", str(CHECKOUT / "crds"))
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{names.PLURAL}.{names.GROUP}"

    def is_served() -> bool:
        found = control_plane.api.get(path)
        conditions = {c["type"]: c["status"] for c in (found.get("status") or {}).get("conditions") or []}
        if conditions.get("Established") != "True":
            return False
        try:
            control_plane.api.get(path_of_jobs("default"))  # empty: tests have their jobs elsewhere
        except ApiError:  # for a moment the server still prepares its storage
            return False
        return True

    control_plane.wait("the CRD to be served", is_served)
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
    control_plane.api.delete(f"{path_of_jobs(where)}/{name}")


@pytest.fixture
def served(control_plane: ControlPlane, crd: dict[str, Any], namespace: str) -> Iterator[ServedNamespace]:
    """A namespace with an operator of its own, and no job yet; what is left of one is let go."""
    made = ServedNamespace(control_plane, namespace)
    made.start_operator()
    yield made
    made.kill_operators()
    path = f"{path_of_jobs(namespace)}/quickstart"
    if control_plane.api.find(path):
        control_plane.api.merge(path, {"metadata": {"finalizers": None}})
