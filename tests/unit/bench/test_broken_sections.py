"""A section that breaks is told, its logs are kept, and nothing of it is left for the sections after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from e2e.bench import __main__ as bench
from e2e.cluster.control_plane import ControlPlane, ControlPlaneError
from e2e.harness.rig import Rig
from e2e.nodes.control import ControlError, NodeControl

Object = dict[str, Any]
JOBS = "/apis/training.hajob.io/v1alpha1/namespaces/default/hatrainingjobs"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
LOOKS = 5


class Control(NodeControl):
    """The nodes' control; what a node that is off should do is done when it is on."""

    def __init__(self, cluster_rig: ClusterRig) -> None:
        super().__init__(Path("nowhere"))
        self._cluster_rig = cluster_rig
        self.powers = {"node-0": True, "node-1": True, "node-2": True}

    def call(self, command: str, **arguments: object) -> Object:
        if command == "state":
            return {"nodes": [{"name": name, "power": power} for name, power in self.powers.items()]}
        name, wanted = str(arguments["node"]), {"power-off": False, "power-on": True, "thaw-node": True}[command]
        if self.powers[name] is wanted:
            raise ControlError(f"node {name} is {'on' if wanted else 'off'} already")
        self.powers[name] = wanted
        self._cluster_rig.end_pods()
        return {"time": 1}


class ClusterRig:
    """A cluster whose pods go when their job is deleted and their node is on; its API shows all nodes as ready."""

    namespace = "default"

    def __init__(self) -> None:
        self.jobs: list[str] = []
        self.pods: dict[str, str] = {}
        self.explained: list[tuple[list[str], list[str]]] = []
        self.nodes = SimpleNamespace(control=Control(self))
        self.api = self.plane = self

    def submit(self, job: str) -> None:
        self.jobs.append(job)
        self.pods |= {f"{job}-{number}": name for number, name in enumerate(self.nodes.control.powers)}

    def end_pods(self) -> None:
        powers = self.nodes.control.powers
        for pod, node in list(self.pods.items()):
            if powers[node] and pod.rpartition("-")[0] not in self.jobs:
                del self.pods[pod]

    def off(self) -> list[str]:
        return [name for name, power in self.nodes.control.powers.items() if not power]

    def explain(self) -> str:
        self.explained.append(([*self.jobs], self.off()))
        return "logs"

    def items(self, path: str, **_: object) -> list[Object]:
        found = {JOBS: self.jobs, PODS: self.pods, NODES: self.nodes.control.powers}[path]
        return [{"metadata": {"name": name, "namespace": self.namespace}} for name in found]

    def get(self, path: str) -> Object:
        assert path.rpartition("/")[2] in self.nodes.control.powers
        return {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}

    def delete(self, path: str) -> None:
        collection, _, name = path.rpartition("/")
        assert collection == JOBS
        self.jobs.remove(name)
        self.end_pods()

    def wait(self, what: str, condition: Callable[[], object], *_: object) -> None:
        if not any(condition() for _ in range(LOOKS)):
            raise ControlPlaneError(f"waited in vain for: {what}")


@pytest.fixture
def cluster_rig(monkeypatch: pytest.MonkeyPatch) -> ClusterRig:
    made = ClusterRig()
    monkeypatch.setattr(ControlPlane, "start", lambda _: None)
    monkeypatch.setattr(Rig, "start_demo", lambda *_: made)
    monkeypatch.setattr(bench, "replace", broken_series)
    monkeypatch.setattr(bench, "save", next_series)
    return made


def broken_series(cluster_rig: ClusterRig, rounds: int, say: Callable[[str], None]) -> Iterator[Any]:
    cluster_rig.submit("replace-0")
    cluster_rig.nodes.control.power_off("node-1")
    yield from ()
    raise AssertionError("the incident is not over")


def next_series(cluster_rig: ClusterRig, rounds: int, say: Callable[[str], None]) -> Iterator[Any]:
    say(f"found {cluster_rig.jobs}, {cluster_rig.pods}, {cluster_rig.off()}")
    yield from ()


def measured() -> bench.Bench:
    made = bench.Bench(cast("Any", None), bench.parse(["--only", "replace", "--only", "save"]))
    made.measure()
    return made


def test_the_next_section_finds_nothing_of_a_broken_one(
    cluster_rig: ClusterRig, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measured().problems == ["replace: the incident is not over"]
    assert "found [], {}, []" in capsys.readouterr().err


def test_a_broken_section_is_explained_as_it_stands(cluster_rig: ClusterRig) -> None:
    measured()
    assert cluster_rig.explained == [(["replace-0"], ["node-1"])]


def test_what_cannot_be_explained_is_cleared_up(
    cluster_rig: ClusterRig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def explain() -> str:
        raise OSError("the disk is full")

    monkeypatch.setattr(cluster_rig, "explain", explain)
    problems = ["replace: the incident is not over", "replace: its logs are not kept: the disk is full"]
    assert measured().problems == problems
    assert "found [], {}, []" in capsys.readouterr().err


def test_what_cannot_be_cleared_up_is_told(
    cluster_rig: ClusterRig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster_rig, "end_pods", lambda: None)
    assert measured().problems == [
        "replace: the incident is not over",
        "replace: not cleared up: waited in vain for: the pods to be gone",
    ]
    assert "found []" in capsys.readouterr().err
