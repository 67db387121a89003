"""Jobs that compete for nodes, with the real scheduler: who waits holds nothing, who is driven out comes back alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.rest import ApiError
from hajob.api import constants as names
from tests.integration.operator.bare_nodes import bare_nodes
from tests.rigs.jobs_on_server import QUICKSTART, ServedNamespace, path_of_jobs

Object = dict[str, Any]
JOBS = ("first", "second")


class Rivals:
    """Two jobs of four nodes each."""

    def __init__(self, served: ServedNamespace, pool: str) -> None:
        self.served, self.plane, self.namespace = served, served.plane, served.namespace
        self.pool = pool
        self.priority = ""

    def apply(self, *jobs: str, **scheduling: str) -> None:
        for name in jobs:
            body = deepcopy(QUICKSTART)
            body["metadata"] = {"name": name, "namespace": self.namespace}
            body["spec"]["scheduling"] = scheduling
            body["spec"]["template"]["spec"]["nodeSelector"] = {"pool": self.pool}
            body["spec"]["coordinator"] = {"nodeSelector": {"pool": self.pool}}
            if self.priority:
                body["spec"]["template"]["spec"]["priorityClassName"] = self.priority
            self.plane.api.create(path_of_jobs(self.namespace), body)

    def pods(self, job: str) -> list[Object]:
        selector = f"{names.LABEL_JOB_NAME}={job},{names.LABEL_ROLE}={names.ROLE_RANK}"
        found = self.plane.api.items(f"/api/v1/namespaces/{self.namespace}/pods", labelSelector=selector)
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def places(self, job: str) -> dict[str, str]:
        """UID of each rank pod to its node."""
        return {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in self.pods(job)}

    def placed(self, job: str) -> int:
        return sum(map(bool, self.places(job).values()))

    def gated(self, job: str) -> int:
        return sum(bool(pod["spec"].get("schedulingGates")) for pod in self.pods(job))

    def scheduled(self, job: str) -> Object:
        found = self.plane.api.get(f"{path_of_jobs(self.namespace)}/{job}")
        conditions = (found.get("status") or {}).get("conditions") or []
        return next((one for one in conditions if one["type"] == "Scheduled"), {})

    def delete(self, job: str) -> None:
        self.plane.api.delete(f"{path_of_jobs(self.namespace)}/{job}")


@pytest.fixture
def rivals(control_plane: ControlPlane, crd: Object, namespace: str) -> Iterator[Rivals]:
    assert crd
    served = ServedNamespace(control_plane, namespace)
    served.start_operator()
    yield Rivals(served, namespace)
    served.kill_operators()
    for name in JOBS:
        if control_plane.api.find(f"{path_of_jobs(namespace)}/{name}"):
            control_plane.api.merge(f"{path_of_jobs(namespace)}/{name}", {"metadata": {"finalizers": None}})


def test_two_jobs_that_need_more_than_half_start_one_by_one(rivals: Rivals, control_plane: ControlPlane) -> None:
    with bare_nodes(control_plane, rivals.pool, 7):
        rivals.apply(*JOBS)
        control_plane.wait("one job to have all its nodes", lambda: 4 in map(rivals.placed, JOBS))
        control_plane.wait("the other to stand behind its gates", lambda: 4 in map(rivals.gated, JOBS))
        first, second = sorted(JOBS, key=rivals.gated)
        assert (rivals.placed(first), rivals.placed(second)) == (4, 0)
        told = "4 pods held back"
        control_plane.wait("the wait to be told", lambda: told in rivals.scheduled(second).get("message", ""))
        assert rivals.scheduled(second)["reason"] == "WaitingForCapacity"
        rivals.delete(first)
        control_plane.wait("the other to start whole", lambda: rivals.placed(second) == 4)


def test_a_pod_that_is_preempted_in_the_start_is_made_alone(rivals: Rivals, control_plane: ControlPlane) -> None:
    with bare_nodes(control_plane, rivals.pool, 4) as nodes, stronger(rivals, nodes[0]) as stranger:
        rivals.apply("first", gangPolicy="None")
        control_plane.wait("the job to have its nodes", lambda: rivals.placed("first") == 4)
        before = rivals.places("first")
        stranger()
        (lost,) = [uid for uid, node in before.items() if node == nodes[0]]
        control_plane.wait("the pod to be driven out", lambda: lost not in rivals.places("first"))
        control_plane.wait("another to be made", lambda: len(rivals.places("first")) == 4)
        after = rivals.places("first")
        assert {uid: after.get(uid) for uid in before if uid != lost} == {
            uid: node for uid, node in before.items() if uid != lost
        }
        with bare_nodes(control_plane, rivals.pool, 1, first=4):
            # The coordinator may be the first to take it, and then makes room.
            control_plane.wait("it to have the new node", lambda: rivals.placed("first") == 4)


@pytest.mark.parametrize("policy", ["PreemptLowerPriority", "Never"])
def test_a_start_takes_lower_nodes_if_its_class_lets_it(
    rivals: Rivals, control_plane: ControlPlane, policy: str
) -> None:
    with bare_nodes(control_plane, rivals.pool, 5), priority_class(rivals, preemptionPolicy=policy) as name:
        rivals.apply("first")
        control_plane.wait("the lower job to have its nodes", lambda: rivals.placed("first") == 4)
        before = rivals.places("first")
        rivals.priority = name
        rivals.apply("second")
        if policy == "Never":
            told = "4 pods held back"
            control_plane.wait("the wait to be told", lambda: told in rivals.scheduled("second").get("message", ""))
            assert (rivals.gated("second"), rivals.places("first")) == (4, before)
            return
        control_plane.wait("the higher job to have all its nodes", lambda: rivals.placed("second") == 4)
        rivals.delete("second")
        control_plane.wait("the lower job to have its nodes again", lambda: rivals.placed("first") == 4)
        assert len(before.keys() & rivals.places("first").keys()) <= 1, "three at least made room"


@contextmanager
def priority_class(rivals: Rivals, **fields: str) -> Iterator[str]:
    classes, name = "/apis/scheduling.k8s.io/v1/priorityclasses", f"stronger-{rivals.namespace}"
    rivals.plane.api.create(classes, {"metadata": {"name": name}, "value": 1000, **fields})
    yield name
    rivals.plane.api.delete(f"{classes}/{name}")


@contextmanager
def stronger(rivals: Rivals, node: str) -> Iterator[Callable[[], None]]:
    """Makes, when called, a stranger's pod of a higher priority that wants the chips of this node."""
    chips = {names.DEFAULT_RESOURCE_NAME: "2"}
    spec: Object = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [{"name": "c", "image": "i", "resources": {"limits": chips, "requests": chips}}],
    }
    path = f"/api/v1/namespaces/{rivals.namespace}/pods"

    def make() -> None:
        rivals.plane.wait("the class to be known", lambda: made(rivals.plane, path, spec))

    with priority_class(rivals) as spec["priorityClassName"]:
        yield make


def made(plane: ControlPlane, path: str, spec: Object) -> bool:
    """Admission sees a class a moment after it was made."""
    try:
        plane.api.create(path, {"metadata": {"name": "stranger"}, "spec": spec})
    except ApiError as error:
        if error.status != 403:
            raise
        return False
    return True
