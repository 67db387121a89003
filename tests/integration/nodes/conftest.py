"""A node set for each worker of the session, and a helper that says pods in few words."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.rest import ApiError
from e2e.nodes.config import NodeSettings
from e2e.nodes.control import NodeControl
from e2e.nodes.launch import RunningNodes, start_nodes

Object = dict[str, Any]
BLOCKS_PER_WORKER = 8
FIRST_BLOCK = 100


class Rig:
    """One test's view: its namespace, the worker's nodes, pods made and looked at."""

    def __init__(self, plane: ControlPlane, namespace: str, nodes: RunningNodes) -> None:
        self.plane = plane
        self.namespace = namespace
        self.nodes = nodes
        self.control: NodeControl = nodes.control
        self.large, self.small, self.plain = (node.name for node in nodes.settings.nodes)

    def path(self, name: str = "", kind: str = "pods") -> str:
        return f"/api/v1/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def create(self, kind: str, body: Object) -> Object:
        return self.plane.api.create(self.path(kind=kind), body)

    def run(self, name: str, script: str = "", **spec: Any) -> Object:
        """Create a pod; ``script`` is its only container unless ``containers`` are given."""
        node = spec.pop("node", self.plain)
        container = shell("main", script, **spec.pop("container", {}))
        where = {"nodeName": node} if spec.pop("bound", True) else {"nodeSelector": {"kubernetes.io/hostname": node}}
        body = {
            "metadata": {"name": name, **spec.pop("metadata", {})},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
                **where,
                **spec,
            },
        }
        return self.create("pods", body)

    def pod(self, name: str) -> Object:
        return self.plane.api.get(self.path(name))

    def wait(self, what: str, true: Callable[[], Any]) -> Any:
        return self.plane.wait(what, true, seconds=90.0)

    def wait_phase(self, name: str, *phases: str) -> Object:
        return dict(self.wait(f"pod {name} to be {phases}", lambda: self._in(self.pod(name), phases)))

    @staticmethod
    def _in(pod: Object, phases: tuple[str, ...]) -> Object | None:
        return pod if pod["status"]["phase"] in phases else None

    def wait_state(self, name: str, word: str, reason: str = "", container: str = "main") -> Object:
        """Wait until a container is in a state, for example waiting with reason ImagePullBackOff."""

        def state() -> Object | None:
            found = self.container(name, container).get("state", {}).get(word)
            return found if found is not None and reason in {"", found.get("reason")} else None

        return dict(self.wait(f"{container} of {name} to be {word} {reason}", state))

    def container(self, name: str, container: str = "main") -> Object:
        status = self.pod(name)["status"]
        everybody = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
        return next((one for one in everybody if one["name"] == container), {})

    def wait_gone(self, name: str) -> None:
        self.wait(f"pod {name} to be gone", lambda: self.plane.api.find(self.path(name)) is None)

    def wait_log(self, name: str, words: str, container: str = "main") -> str:
        """Wait until a container has said something."""

        def said() -> str | None:
            try:
                text = str(self.plane.api.get(self.path(name) + "/log", container=container)["text"])
            except ApiError:
                return None
            return text if words in text else None

        return str(self.wait(f"{container} of {name} to say {words!r}", said))

    def delete(self, name: str, **query: int) -> None:
        self.plane.api.delete(self.path(name), **query)

    def on_nodes(self) -> list[Object]:
        """The pods of this namespace that the nodes still have."""
        pods = [pod for node in self.control.state()["nodes"] for pod in node["pods"]]
        return [pod for pod in pods if pod["namespace"] == self.namespace]

    def pids(self, name: str, container: str | None = None) -> list[int]:
        return [process.pid for process in self.control.processes(pod=name, container=container)]


def shell(name: str, script: str, **fields: Any) -> Object:
    """A container that runs a shell script."""
    return {"name": name, "image": "shell:1", "args": [script], **fields}


def python(name: str, script: str, **fields: Any) -> Object:
    """A container that runs Python."""
    return {"name": name, "image": "python:1", "args": [script], **fields}


@pytest.fixture(scope="session")
def node_set(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNodes]:
    """Three nodes: with four chips, with two, with none."""
    worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
    images = {
        "shell:1": image(tmp_path_factory.mktemp("shell"), ["/bin/sh", "-c"]),
        "python:1": image(tmp_path_factory.mktemp("python"), [sys.executable, "-S", "-u", "-c"]),
    }
    settings = [
        NodeSettings(name=f"large-{worker}", chips=4),
        NodeSettings(name=f"small-{worker}", chips=2),
        NodeSettings(name=f"plain-{worker}"),
    ]
    nodes = start_nodes(
        control_plane.run,
        control_plane,
        settings,
        images,
        name=f"nodes-{worker}",
        first_block=FIRST_BLOCK + BLOCKS_PER_WORKER * worker,
        lease_renew_seconds=0.2,
        restart_backoff_seconds=0.3,
        sync_seconds=0.3,
        host_paths={"/var/lib/shared": control_plane.run.directory / f"shared-{worker}"},
    )
    yield nodes
    nodes.stop()
    for node in settings:
        control_plane.api.delete(f"/api/v1/nodes/{node.name}")


def image(directory: Path, entrypoint: list[str]) -> Path:
    content = {"env": {"PATH": "/usr/local/bin:/usr/bin:/bin", "FROM_IMAGE": "yes"}, "entrypoint": entrypoint}
    (directory / "image.json").write_text(json.dumps(content))
    return directory


@pytest.fixture
def rig(control_plane: ControlPlane, namespace: str, node_set: RunningNodes) -> Iterator[Rig]:
    rig = Rig(control_plane, namespace, node_set)
    yield rig
    for node in node_set.control.state()["nodes"]:
        if not node["power"]:
            rig.control.power_on(node["name"])
        if not node["api"]:
            rig.control.restore_api(node["name"])
    for pod in control_plane.api.items(rig.path()):
        rig.delete(pod["metadata"]["name"], gracePeriodSeconds=0)
    rig.wait("the nodes to be rid of the test's pods", lambda: not rig.on_nodes())
