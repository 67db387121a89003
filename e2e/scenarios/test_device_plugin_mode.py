"""A cluster whose device plugin is in its Volcano mode, as MindCluster installs it, and jobs by either scheduler."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from e2e.harness.fixtures import RunHajob
from e2e.harness.images import TRAINER_IMAGE
from e2e.harness.job import Job
from e2e.harness.rig import RIG_LABEL, Rig, RigLayout
from e2e.scenarios.doctors_findings import findings_of_doctor
from e2e.scenarios.proofs import assert_recovered
from hajob.api.constants import ANNOTATION_CONFIGURATION, ANNOTATION_REAL_CHIPS

pytestmark = pytest.mark.slow

STEPS = 300
CHIPS = 4
PLUGIN = "ascend-device-plugin-daemonset"
BY_TABLE = """#!/usr/bin/env bash
while ! grep -q '"status": *"completed"' "$RANK_TABLE_FILE"; do
    sleep 0.2
done
exec bash train.sh "$@"
"""
PARTS: dict[str, Any] = {"accelerator": {"product": "A2", "chipsPerNode": 2}}
"""Two of the four chips of each node."""


@pytest.fixture
def rig(start_rig: Callable[[RigLayout], Rig]) -> Iterator[Rig]:
    layout = RigLayout(chip_nodes=5, chips=CHIPS, volcano=True, node_settings={"volcanoMode": True})
    rig = start_rig(layout)
    rig.plane.apply(device_plugin(rig))
    path = f"/apis/apps/v1/namespaces/{rig.namespace}/daemonsets/{PLUGIN}"
    rig.plane.wait("a plugin on each node", lambda: rig.plane.api.get(path)["status"].get("numberReady") == 5)
    yield rig
    rig.plane.api.delete(path)


def device_plugin(rig: Rig) -> dict[str, Any]:
    """The DaemonSet, with the command line of MindCluster's; the nodes themselves do its work."""
    container = {
        "name": "device-plugin-01",
        "image": TRAINER_IMAGE,
        "command": ["/bin/bash", "-c", "--"],
        "args": ["exec sleep 86400 # device-plugin -useAscendDocker=true -volcanoType=true -presetVirtualDevice=true"],
    }
    labels = {"name": "ascend-device-plugin-ds"}
    pod = {
        "containers": [container],
        "nodeSelector": {RIG_LABEL: rig.name, "accelerator": "huawei-Ascend910"},
        "terminationGracePeriodSeconds": 1,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": PLUGIN, "namespace": rig.namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }


def by_kubernetes(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Add to the spec that Kubernetes' own scheduler places the job."""
    return {"scheduling": {"gangPolicy": "SchedulingGates"}, **spec}


def notes(job: Job) -> list[dict[str, str]]:
    """Annotations of the rank pods."""
    return [pod["metadata"]["annotations"] for pod in job.pods("rank")]


def test_a_part_of_a_node_is_volcanos_alone(rig: Rig, run_hajob: RunHajob) -> None:
    """By Kubernetes' scheduler it is refused before it has a pod; as Volcano's job it trains."""
    job = rig.submit("refused", iterations=STEPS, spec=by_kubernetes(PARTS))
    refused = "2 of the 4 huawei.com/Ascend910 of a node, without Volcano: the device plugin"
    rig.plane.wait("why not", lambda: refused in job.condition("Accepted").get("message", ""))
    condition = job.condition("Accepted")
    assert (condition["status"], condition["reason"], job.pods()) == ("False", "PodRefused", [])
    assert f"{rig.namespace}/{PLUGIN}-" in condition["message"]
    ((grade, message),) = findings_of_doctor(run_hajob, rig, job, "device plugin")
    assert (grade, message.startswith(f"{rig.namespace}/{PLUGIN} is in Volcano mode: ")) == ("ok", True)
    found = findings_of_doctor(run_hajob, rig, job)
    assert "wants 2 of 4 chips of a node by another scheduler than Volcano" in str(found)
    job.delete()
    trains = rig.submit("trains", iterations=STEPS, spec=PARTS)
    trains.wait_step(10)
    assert all(len(one[ANNOTATION_REAL_CHIPS].split(",")) == 2 for one in notes(trains))
    assert "chips of a node" not in str(findings_of_doctor(run_hajob, rig, trains))
    rig.nodes.control.power_off(trains.node_of(1))
    assert trains.wait_incident(2)["action"] == "Replace"
    assert_recovered(trains, [2, 3], STEPS)


def test_whole_nodes_get_their_notes_from_hajob(rig: Rig, run_hajob: RunHajob) -> None:
    """Nobody else writes them, and the rank table is made of them; a replacement gets its own."""
    (rig.trainer_image / "train_by_table.sh").write_text(BY_TABLE)
    asked = by_kubernetes({"network": {"rankTablePolicy": "Enabled"}})
    job = rig.submit(iterations=STEPS, chips=CHIPS, script="train_by_table.sh", spec=asked)
    job.wait_step(10)
    every_chip = ",".join(f"Ascend910-{number}" for number in range(CHIPS))
    assert [one[ANNOTATION_REAL_CHIPS] for one in notes(job)] == [every_chip] * 4
    assert "chips of a node" not in str(findings_of_doctor(run_hajob, rig, job)), "four are all chips of these nodes"
    rig.nodes.control.power_off(job.node_of(2))
    assert job.wait_incident(2)["action"] == "Replace"
    assert all(json.loads(one[ANNOTATION_CONFIGURATION])["devices"] for one in notes(job))
    assert_recovered(job, range(8, 12), STEPS)
