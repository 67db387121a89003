"""Super pods by Volcano itself and its Ascend plugin: nodes of sixteen chips that are only told to be there (KWOK).

Nothing trains: the job's pods are placed and replaced, which is all that its scheduler has to do with them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from e2e.bench.operator_scale import NAMESPACE, ScaleRig, job
from e2e.cluster.kwok import node
from e2e.harness.operator import SERVES_VOLCANO
from e2e.nodes.chips import chip_name, device_address
from e2e.nodes.faults import device_info, go_json
from e2e.nodes.machine import DEVICES_ANNOTATION
from e2e.volcano.install import REAL_ONE, install_volcano, placed_by_volcano
from e2e.volcano.scheduler import API
from hajob.api import constants as names

pytestmark = [
    pytest.mark.skipif(not os.environ.get(REAL_ONE), reason=f"{REAL_ONE} names no directory of Volcano's programs"),
    pytest.mark.slow,
]

CHIPS: Final = 16
NODES_OF_SUPER_POD: Final = 4
Object = dict[str, Any]


@pytest.fixture
def rig() -> Iterator[ScaleRig]:
    """Two super pods of four nodes, and a node without chips for the coordinator."""
    with ScaleRig.start(1, environment={SERVES_VOLCANO: "true"}) as rig:
        for number in range(2 * NODES_OF_SUPER_POD):
            add_node(rig, number)
        rig.plane.wait("the nodes to be ready", lambda: rig.nodes.ready() == 1 + 2 * NODES_OF_SUPER_POD)
        install_volcano(rig.plane)
        rig.start_operator()
        yield rig


def add_node(rig: ScaleRig, number: int) -> None:
    """A node as the device plugin of an A3 machine describes it."""
    name, super_pod, resource = f"a3-{number}", number // NODES_OF_SUPER_POD, names.DEFAULT_RESOURCE_NAME
    address = rig.plane.run.address(0, 3)
    chips = {
        chip_name(chip, resource): {"IP": device_address(address, chip), "SuperDeviceID": number * CHIPS + chip}
        for chip in range(CHIPS)
    }
    body = node(name, CHIPS, {names.LABEL_NODE_SUPER_POD: str(super_pod)})
    body["metadata"]["annotations"] |= {
        DEVICES_ANNOTATION: go_json(chips),
        "superPodID": str(super_pod),
        "serverIndex": str(number % NODES_OF_SUPER_POD),
    }
    rig.nodes.add([body])
    info = device_info(name, resource, range(CHIPS), [], time.time())
    told = {**json.loads(info["data"]["DeviceInfoCfg"]), "SuperPodID": super_pod}
    info["data"]["DeviceInfoCfg"] = go_json(told)
    rig.plane.api.create(f"/api/v1/namespaces/{info['metadata']['namespace']}/configmaps", info)


class Placed:
    """The rank pods of a job."""

    def __init__(self, rig: ScaleRig) -> None:
        self.rig = rig

    def pods(self) -> dict[int, Object]:
        """Those that have a node and are not going, by node rank."""
        found = self.rig.plane.api.items(
            f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=f"{names.LABEL_ROLE}={names.ROLE_RANK}"
        )
        here = [pod for pod in found if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]]
        return {int(pod["metadata"]["labels"][names.LABEL_NODE_RANK]): pod for pod in here}

    def super_pods(self) -> dict[int, int]:
        """Where each of them is."""
        nodes = {rank: pod["spec"]["nodeName"] for rank, pod in self.pods().items()}
        return {rank: int(name.removeprefix("a3-")) // NODES_OF_SUPER_POD for rank, name in nodes.items()}

    def policy(self) -> dict[str, str]:
        """What the job's PodGroup says of nodes."""
        (group,) = self.rig.plane.api.items(f"{API}/namespaces/{NAMESPACE}/podgroups")
        keys = (names.ANNOTATION_SCHEDULE_POLICY, names.ANNOTATION_SUPER_POD_BLOCK)
        return {key: value for key, value in group["metadata"]["annotations"].items() if key in keys}

    def delete(self, rank: int) -> str:
        """Delete the pod of a node rank; its UID."""
        metadata = self.pods()[rank]["metadata"]
        self.rig.plane.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{metadata['name']}")
        return str(metadata["uid"])

    def is_replaced(self, rank: int, uid: str) -> bool:
        """Whether another pod of this node rank has a node."""
        pod = self.pods().get(rank)
        return pod is not None and str(pod["metadata"]["uid"]) != uid


def test_blocks_are_placed_once_and_replacements_held(rig: ScaleRig) -> None:
    body = placed_by_volcano(job("blocks", 4))
    body["spec"] |= {
        "accelerator": {"product": "A3", "superPodChips": 2 * CHIPS},
        "parallelism": {"tensor": CHIPS},
    }
    rig.apply(body)
    placed = Placed(rig)
    rig.plane.wait("all to have a node", lambda: len(placed.pods()) == 4)
    at_first = placed.super_pods()
    assert at_first[0] == at_first[1]
    assert at_first[2] == at_first[3]
    noted = {rank: pod["metadata"]["annotations"] for rank, pod in placed.pods().items()}
    assert {rank: int(each[names.ANNOTATION_SUPER_POD]) for rank, each in noted.items()} == at_first
    assert [noted[rank][names.ANNOTATION_SUPER_POD_RANK] for rank in range(4)] == ["0", "0", "1", "1"]
    rig.plane.wait(
        "single pods to be placed", lambda: placed.policy() == {"huawei.com/schedule_policy": "chip2-node16"}
    )

    # No block of two is free any more in either: under -sp nothing would ever be placed again.
    own = at_first[3]
    taken = {pod["spec"]["nodeName"] for pod in placed.pods().values()}
    free = [f"a3-{number}" for number in range(2 * NODES_OF_SUPER_POD) if f"a3-{number}" not in taken]
    near = [name for name in free if int(name.removeprefix("a3-")) // NODES_OF_SUPER_POD == own]
    far = [name for name in free if name not in near]
    for name in (*near[1:], *far[1:]):
        rig.plane.kubectl("cordon", name)
    uid = placed.delete(3)
    rig.plane.wait("its successor to have a node", lambda: placed.is_replaced(3, uid))
    assert placed.super_pods() == at_first

    # Only the other super pod has room: it waits for its own.
    for name in near:
        rig.plane.kubectl("cordon", name)
    rig.plane.kubectl("cordon", placed.pods()[3]["spec"]["nodeName"])
    uid = placed.delete(3)
    rig.plane.wait("why it waits", lambda: "NodeAffinity" in str(waiting_pod(rig)))
    assert not placed.is_replaced(3, uid)
    rig.plane.kubectl("uncordon", near[0])
    rig.plane.wait("its successor to have a node", lambda: placed.is_replaced(3, uid))
    assert placed.super_pods() == at_first


def waiting_pod(rig: ScaleRig) -> list[Object]:
    """What the scheduler says of pods without a node, and of the PodGroup."""
    found = rig.plane.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods")
    told = [pod["status"].get("conditions") for pod in found if not pod["spec"].get("nodeName")]
    return [
        *told,
        *(each["status"].get("conditions") for each in rig.plane.api.items(f"{API}/namespaces/{NAMESPACE}/podgroups")),
    ]
