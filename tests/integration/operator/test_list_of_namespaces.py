"""An operator with a list of namespaces and the chart's rights for it, on a real API server without nodes."""

from __future__ import annotations

import datetime
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster import audit
from e2e.cluster.control_plane import ControlPlane
from e2e.harness.fixtures import a_namespace
from e2e.harness.operator import NAME, moved, uninstall
from hajob.api import constants as names
from tests.rigs.jobs_on_server import QUICKSTART, path_of_jobs
from tests.rigs.operator_rights import KINDS_THAT_GIVE_RIGHTS

GOLDEN = CHECKOUT / "tests/integration/chart/golden/two-namespaces.yaml"
SERVED = ("jobs", "more-jobs")
"""The namespaces of the list there."""
Object = dict[str, Any]
NUM_PODS = 5
"""Of the quickstart: four ranks and a coordinator."""


def rights(operator: str, served: tuple[str, str]) -> list[Object]:
    """What the chart gives an operator with a list, for one that runs and serves elsewhere; without Helm."""
    found = [each for each in yaml.safe_load_all(GOLDEN.read_text()) if each["kind"] in KINDS_THAT_GIVE_RIGHTS]
    for each in found:
        if (where := each["metadata"].get("namespace")) in SERVED:
            each["metadata"]["namespace"] = served[SERVED.index(where)]
    return [moved(each, operator) for each in found]


class Listed:
    """An operator in a namespace of its own, whose list has two more.

    Attributes:
        one, two: the namespaces of the list.
        since: when its rights were installed.
    """

    def __init__(self, plane: ControlPlane, operator: str, one: str, two: str, directory: Path) -> None:
        self.plane, self.operator, self.one, self.two = plane, operator, one, two
        self.rights = rights(operator, (one, two))
        self.since = datetime.datetime.now(datetime.UTC)
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it with its service account's token, and with its rights, if they are installed."""
        path = f"/api/v1/namespaces/{self.operator}/serviceaccounts/{NAME}/token"
        (self._directory / "token").write_text(self.plane.api.create(path, {"spec": {}})["status"]["token"])
        (self._directory / "ca.crt").write_bytes(self.plane.ca_file.read_bytes())
        host, _, port = self.plane.server.removeprefix("https://").rpartition(":")
        address = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        self._start({**address, "HAJOB_SERVICE_ACCOUNT_DIR": str(self._directory)}, self.two)

    def start_as_admin(self, two: str) -> None:
        """Start it with all rights everywhere, and another second namespace in its list."""
        self._start({"HAJOB_KUBECONFIG": str(self.plane.kubeconfig)}, two)

    def _start(self, credentials: dict[str, str], two: str) -> None:
        environment = {
            **credentials,
            "HAJOB_NAMESPACE": self.operator,
            "HAJOB_WATCH_NAMESPACES": f"{self.one},{two}",
            "HAJOB_FAULT_NAMESPACES": "kube-system",
            "HAJOB_FAULT_NODE_SELECTOR": "hajob.io/nowhere=true",
            "HAJOB_METRICS_PORT": "0",
        }
        command = [sys.executable, "-m", "hajob.app.operator"]
        self._process = self.plane.run.spawn(f"operator-{self.operator}", command, environment)

    def end(self) -> None:
        """End it, and remove what is outside of namespaces of this test."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        uninstall(self.plane, self.rights, self.operator)

    def apply(self, namespace: str) -> None:
        """A job that no node can take."""
        job = deepcopy(QUICKSTART)
        nowhere = {"hajob.io/nowhere": "true"}  # other tests' nodes are there as well
        job["spec"]["template"]["spec"]["nodeSelector"] = nowhere
        job["spec"]["coordinator"] = {"nodeSelector": nowhere}
        self.plane.api.create(path_of_jobs(namespace), {**job, "metadata": {"name": "quickstart"}})

    def job(self, namespace: str) -> Object | None:
        return self.plane.api.find(f"{path_of_jobs(namespace)}/quickstart")

    def delete_job(self, namespace: str) -> None:
        """Delete it, and wait until its finalizer is gone."""
        self.plane.api.delete(f"{path_of_jobs(namespace)}/quickstart")
        self.plane.wait("the job to be let go", lambda: self.job(namespace) is None)

    def pods(self, namespace: str) -> set[str]:
        """UIDs."""
        return {pod["metadata"]["uid"] for pod in self.plane.api.items(f"/api/v1/namespaces/{namespace}/pods")}

    def rank_pods(self, namespace: str) -> set[str]:
        """UIDs; a coordinator that finds no node for long is made anew."""
        selector = f"{names.LABEL_ROLE}={names.ROLE_RANK}"
        items = self.plane.api.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)
        return {pod["metadata"]["uid"] for pod in items}

    def wait_served(self, namespace: str) -> None:
        """Until the job there has its pods."""
        self.plane.wait(f"pods in {namespace}", lambda: len(self.pods(namespace)) == NUM_PODS)

    def log(self) -> str:
        """Its own."""
        return (self.plane.run.logs / f"operator-{self.operator}.log").read_text()

    def requests(self) -> list[audit.Request]:
        """What it has asked, without what it only got or listed: that is in its log, if it was refused."""
        return list(self.plane.audit.requests(self.since, user=f"system:serviceaccount:{self.operator}:{NAME}"))

    def is_untouched(self, namespace: str) -> bool:
        """Whether nobody has taken up the job there."""
        job = self.job(namespace)
        assert job is not None
        return not (job["metadata"].get("finalizers") or job.get("status") or self.pods(namespace))


@pytest.fixture
def third(control_plane: ControlPlane, crd: Object) -> Iterator[str]:
    """A namespace that is in no list."""
    with a_namespace(control_plane, f"third-{secrets.token_hex(4)}") as name:
        yield name
        control_plane.api.delete(f"{path_of_jobs(name)}/quickstart")


@pytest.fixture
def listed(control_plane: ControlPlane, crd: Object, namespace: str, tmp_path: Path) -> Iterator[Listed]:
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(a_namespace(control_plane, f"{each}-{secrets.token_hex(4)}")) for each in ("one", "two")
        )
        made = Listed(control_plane, namespace, one, two, tmp_path)
        yield made
        made.end()
        for each in (one, two):
            if made.job(each):
                control_plane.api.merge(f"{path_of_jobs(each)}/quickstart", {"metadata": {"finalizers": None}})


def test_two_of_three_namespaces_are_served(listed: Listed, third: str) -> None:
    """Nothing that it needs is refused, and it asks for nothing in the third."""
    listed.plane.apply(*listed.rights)
    listed.start()
    for namespace in (third, listed.one, listed.two):
        listed.apply(namespace)
    for namespace in (listed.one, listed.two):
        listed.wait_served(namespace)
        listed.delete_job(namespace)
    assert listed.is_untouched(third)
    asked = listed.requests()
    assert {each.namespace for each in asked} >= {listed.one, listed.two}
    assert [each for each in asked if each.namespace == third] == []
    assert [each for each in asked if each.status == 403] == []
    assert "orbidden" not in listed.log()


def test_a_namespace_without_rights_is_served_once_it_has_them(listed: Listed) -> None:
    """As one that was deleted, and its Role with it, and is made again; the other one is served all along."""
    later = [each for each in listed.rights if each["metadata"].get("namespace") == listed.two]
    listed.plane.apply(*(each for each in listed.rights if each not in later))
    listed.start()
    for namespace in (listed.one, listed.two):
        listed.apply(namespace)
    listed.wait_served(listed.one)
    before = listed.rank_pods(listed.one)
    refusal = f'cannot list resource "hatrainingjobs" in API group "training.hajob.io" in the namespace "{listed.two}"'
    listed.plane.wait("a refusal", lambda: refusal in listed.log())
    assert listed.is_untouched(listed.two)
    listed.plane.apply(*later)
    listed.wait_served(listed.two)

    listed.delete_job(listed.two)
    path = f"/api/v1/namespaces/{listed.two}"
    listed.plane.api.delete(path)
    listed.plane.wait("the namespace to be gone", lambda: listed.plane.api.find(path) is None)
    listed.plane.api.create("/api/v1/namespaces", {"metadata": {"name": listed.two}})
    listed.plane.apply(*later)
    listed.apply(listed.two)
    listed.wait_served(listed.two)
    assert listed.rank_pods(listed.one) == before
    assert {each.namespace for each in listed.requests() if each.status == 403} <= {listed.two}


def test_a_namespace_of_the_list_goes_with_its_job(listed: Listed) -> None:
    """The rights there go first, as they may when the cluster deletes everything in it; the other one stays served."""
    listed.plane.apply(*listed.rights)
    listed.start()
    for namespace in (listed.one, listed.two):
        listed.apply(namespace)
        listed.wait_served(namespace)
    before = listed.rank_pods(listed.one)
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{listed.two}/rolebindings"
    for binding in listed.plane.api.items(bindings):
        listed.plane.api.delete(f"{bindings}/{binding['metadata']['name']}")
    path = f"/api/v1/namespaces/{listed.two}"
    listed.plane.api.delete(path)
    listed.plane.wait("the namespace to be gone", lambda: listed.plane.api.find(path) is None)
    assert listed.rank_pods(listed.one) == before
    patched = [each for each in listed.requests() if each.verb == "patch" and each.namespace == listed.two]
    assert 403 not in {each.status for each in patched if each.resource == names.PLURAL}


def test_a_name_may_be_in_the_list_before_its_namespace(listed: Listed) -> None:
    """Where the rights are cluster-wide, as in deploy/: the chart's Roles need the namespace."""
    later = f"later-{secrets.token_hex(4)}"
    listed.start_as_admin(later)
    listed.apply(listed.one)
    listed.wait_served(listed.one)
    with a_namespace(listed.plane, later):
        listed.apply(later)
        listed.wait_served(later)
        listed.delete_job(later)
