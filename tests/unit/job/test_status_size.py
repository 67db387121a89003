"""The status of a healthy job stays small, whatever it uses: people read it with kubectl."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from e2e.bootstrap.paths import CHECKOUT
from hajob.api import constants as names
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.node import NodeView
from hajob.sources.pod import pod_view_of
from tests.rigs.job_controller import QUICKSTART, ControllerTown, settle_town

MOST_BYTES = 4096


class HealthyTown(ControllerTown):
    """Each pod has a node of its own, a spare pod has one more, and a node is free."""

    async def run_pods(self) -> None:
        for (resource, _, _), body in sorted(self.kube.objects.items()):
            if resource == "pods" and "podIP" not in body.get("status", {}):
                number = len([pod for pod in self.pods() if pod.node_name])
                body["spec"].pop("schedulingGates", None)
                body["spec"]["nodeName"] = f"node-{number}"
                ready = [{"type": "Ready", "status": "True"}]
                body["status"] = {"phase": "Running", "podIP": f"127.0.1.{number}", "conditions": ready}
                self.controller.apply_pod(pod_view_of(body))
        await settle_town(self)


def with_all_features() -> dict[str, Any]:
    """Return a job of 64 ranks that uses everything at once."""
    raw: dict[str, Any] = yaml.safe_load((CHECKOUT / "examples/full.yaml").read_text(encoding="utf-8"))
    raw["metadata"] = {"name": "quickstart"}
    spec = raw["spec"] | {"numNodes": 8, "accelerator": {"product": "A2", "chipsPerNode": 8}}
    return {**raw, "spec": spec | {"parallelism": {"tensor": 4, "pipeline": 2, "expert": 4}}}


async def trained(raw: dict[str, Any], chips: int) -> dict[str, Any]:
    """Start as jobs do, and train for two hours; return the status."""
    town = HealthyTown(raw)
    town.nodes = {f"node-{n}": NodeView(f"node-{n}", chips={names.DEFAULT_RESOURCE_NAME: chips}) for n in range(14)}
    await settle_town(town)
    await town.clock.advance(3)  # for nodes, then for ranks
    await town.run_pods()
    await town.clock.advance(70)
    await town.report(milestones=[wire.Milestone(kind=wire.STARTED, incarnation=1)])
    await town.report(step=5)
    await town.run_pods()
    for step in range(40_001, 40_012):
        await town.clock.advance(600)
        found = wire.CheckpointState(step=step - step % 5, attempt=1, name="iter_40", tracked=True, loaded_step=-1)
        await town.report(step=step, checkpoint=found)
    status = town.status()
    await town.controller.stop_managing()
    return status


@pytest.mark.parametrize("features", ["readme", "all"])
async def test_the_status_of_a_healthy_job_is_small(features: str) -> None:
    readme = yaml.safe_load(QUICKSTART.read_text(encoding="utf-8"))
    status = await (trained(readme, 2) if features == "readme" else trained(with_all_features(), 8))
    assert status["summary"]["state"] == "Running"
    assert "unmet" not in status["protection"], status["protection"]
    size = len(json.dumps(status, separators=(",", ":")))
    parts = {key: len(json.dumps(part, separators=(",", ":"))) for key, part in status.items()}

    assert size <= MOST_BYTES, f"{size} bytes: {parts}\n{json.dumps(status)}"
