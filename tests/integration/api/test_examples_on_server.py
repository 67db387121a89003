"""Every example is taken by a real API server as it stands, and by the operator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.control_plane import ControlPlane
from tests.rigs.jobs_on_server import ServedNamespace, path_of_jobs

EXAMPLES = sorted((CHECKOUT / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.stem))
def test_an_example_is_applied(control_plane: ControlPlane, crd: dict[str, Any], namespace: str, path: Path) -> None:
    control_plane.kubectl("apply", "-n", namespace, "-f", str(path))
    stored = control_plane.api.items(path_of_jobs(namespace))
    written = list(yaml.safe_load_all(path.read_text()))
    assert {job["metadata"]["name"] for job in stored} == {job["metadata"]["name"] for job in written}


@pytest.fixture
def priority_class(control_plane: ControlPlane) -> Iterator[None]:
    """The one that an example names."""
    collection = "/apis/scheduling.k8s.io/v1/priorityclasses"
    made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "training-services"}}
    control_plane.api.create(collection, {**made, "value": 1000})
    yield
    control_plane.api.delete(f"{collection}/training-services")


def test_every_example_is_accepted_by_the_operator(served: ServedNamespace, priority_class: None) -> None:
    """Their pods ask for nodes that are not there: those of other tests are none of theirs."""
    jobs: dict[str, dict[str, Any]] = {}
    for path in EXAMPLES:
        for number, job in enumerate(yaml.safe_load_all(path.read_text())):
            job["metadata"] |= {"name": f"{path.stem}-{number}", "namespace": served.namespace}
            job["spec"]["template"]["spec"]["nodeSelector"] = served.job["spec"]["template"]["spec"]["nodeSelector"]
            job["spec"].setdefault("coordinator", {})["nodeSelector"] = served.job["spec"]["coordinator"][
                "nodeSelector"
            ]
            jobs[job["metadata"]["name"]] = job
    applied = {"kind": "List", "apiVersion": "v1", "items": [*jobs.values()]}
    served.plane.kubectl("apply", "-f", "-", stdin=json.dumps(applied))

    def verdicts() -> dict[str, tuple[str, str]]:
        found = {}
        for job in served.plane.api.items(path_of_jobs(served.namespace)):
            for each in (job.get("status") or {}).get("conditions") or []:
                if each["type"] == "Accepted":
                    found[str(job["metadata"]["name"])] = (str(each["status"]), str(each.get("message")))
        return found

    served.until("a verdict about every example", lambda: verdicts().keys() == jobs.keys())
    refused = {name: verdict for name, verdict in verdicts().items() if verdict[0] != "True"}
    assert refused.keys() == {"volcano-0"}  # this operator is installed without it
    assert "volcano.enabled in the chart" in refused["volcano-0"][1]
