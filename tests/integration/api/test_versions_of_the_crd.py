"""The way from v1alpha1 to v1beta1, rehearsed on a real server with a CRD of its own (docs/decisions/0032)."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from http import HTTPStatus
from typing import Any

import pytest
import yaml

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.rest import ApiError
from hajob.api import constants as names
from tests.rigs.jobs_on_server import QUICKSTART

GROUP = "rehearsal.hajob.io"
CRD = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{names.PLURAL}.{GROUP}"
OLD, NEW = "v1alpha1", "v1beta1"
Object = dict[str, Any]


class Rehearsal:
    """The CRD under another group, and one job of it."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane, self._namespace = plane, namespace
        path = CHECKOUT / "crds" / f"{names.GROUP}_{names.PLURAL}.yaml"
        self._crd = yaml.safe_load(path.read_text())
        self._crd["metadata"] = {"name": f"{names.PLURAL}.{GROUP}"}
        self._crd["spec"]["group"] = GROUP
        self._crd["spec"]["names"].pop("shortNames", None)
        self._crd["spec"]["names"].pop("categories", None)

    def apply(self, stored: str, *served: str) -> None:
        """A release's CRD: which version is stored, and which ones are served."""
        (known,) = self._crd["spec"]["versions"]
        crd = deepcopy(self._crd)
        crd["spec"]["versions"] = [
            {**self._with_field(known, name), "name": name, "served": name in served, "storage": name == stored}
            for name in dict.fromkeys((*served, stored))
        ]
        self._plane.apply_server_side(crd)
        expected = {version: version in served for version in (OLD, NEW)}
        self._plane.wait(f"versions served: {expected}", lambda: {v: self._is_served(v) for v in expected} == expected)

    def _with_field(self, version: Object, name: str) -> Object:
        """Added in the release that brings v1beta1, to both versions."""
        made = deepcopy(version)
        if name == NEW or self._added:
            made["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["wings"] = {"type": "integer"}
        return made

    _added = False

    def add_field(self) -> None:
        """From here on both versions have the new field."""
        self._added = True

    def _is_served(self, version: str) -> bool:
        """Ask with a creation that is not kept: the schema that OpenAPI shows may lag minutes behind."""
        probe = self._new_job(version, "probe", wings=1)
        try:
            kept = self._plane.api.create(f"{self._jobs(version)}?dryRun=All", probe)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        return ("wings" in kept["spec"]) == self._added

    def _jobs(self, version: str) -> str:
        return f"/apis/{GROUP}/{version}/namespaces/{self._namespace}/{names.PLURAL}"

    def create(self, version: str, name: str, **spec: object) -> Object:
        return self._plane.api.create(self._jobs(version), self._new_job(version, name, **spec))

    def _new_job(self, version: str, name: str, **spec: object) -> Object:
        job = {**deepcopy(QUICKSTART), "apiVersion": f"{GROUP}/{version}", "metadata": {"name": name}}
        job["spec"] |= spec
        return job

    def get(self, version: str, name: str) -> Object:
        return self._plane.api.get(f"{self._jobs(version)}/{name}")

    def rewrite(self, version: str, name: str) -> None:
        """The empty patch that stores an object anew."""
        self._plane.api.merge(f"{self._jobs(version)}/{name}", {})

    def stored_versions(self) -> list[str]:
        found: list[str] = self._plane.api.get(CRD)["status"]["storedVersions"]
        return found

    def drop_stored_version(self, *kept: str) -> None:
        body = yaml.safe_dump({"status": {"storedVersions": list(kept)}})
        name = f"{names.PLURAL}.{GROUP}"
        self._plane.kubectl("patch", "crd", name, "--subresource=status", "--type=merge", "-p", body)


@pytest.fixture
def rehearsal(control_plane: ControlPlane, namespace: str) -> Iterator[Rehearsal]:
    yield Rehearsal(control_plane, namespace)
    control_plane.api.delete(CRD)


@pytest.mark.slow
def test_four_releases_lead_to_v1beta1(rehearsal: Rehearsal) -> None:
    rehearsal.apply(OLD, OLD)
    uid = rehearsal.create(OLD, "lasting")["metadata"]["uid"]

    rehearsal.add_field()
    rehearsal.apply(OLD, OLD, NEW)  # release N
    assert rehearsal.get(NEW, "lasting")["metadata"]["uid"] == uid
    rehearsal.create(NEW, "winged", wings=2)
    assert rehearsal.get(OLD, "winged")["spec"]["wings"] == 2, "both have one schema: nothing is lost on the way back"

    rehearsal.apply(NEW, OLD, NEW)  # N+1
    assert rehearsal.stored_versions() == [OLD, NEW]
    assert rehearsal.get(OLD, "lasting")["spec"] == rehearsal.get(NEW, "lasting")["spec"]
    rehearsal.apply(OLD, OLD, NEW)  # rolled back, and again
    rehearsal.apply(NEW, OLD, NEW)

    for name in ("lasting", "winged"):  # N+2
        rehearsal.rewrite(NEW, name)
    rehearsal.drop_stored_version(NEW)

    rehearsal.apply(NEW, NEW)  # N+3
    assert rehearsal.stored_versions() == [NEW]
    assert rehearsal.get(NEW, "lasting")["metadata"]["uid"] == uid
    with pytest.raises(ApiError):
        rehearsal.get(OLD, "lasting")
