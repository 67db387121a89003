"""Notes the chips of rank pods that have all chips of their node, where nobody else does.

MindCluster's device plugin in its Volcano mode serves such pods of other schedulers, and writes none of its annotations
onto them: ClusterD sees pods without devices, and whoever reads rank tables finds none. All chips of the node are the
pod's, so that they are known; the plugin leaves a pod alone that has the annotations.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import inf
from typing import Final

from hajob.api import constants as names
from hajob.api.derived import has_rank_table
from hajob.api.enums import GangPolicy
from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import GONE, Patch, Wants, patch_of_pod
from hajob.sources.base_devices import parse_base_devices
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView
from hajob.sources.reading import parse_whole_number

PATIENCE_SECONDS: Final = 30.0
"""A device plugin that writes them does so within 5 s of a pod's start."""
HURRIED_SECONDS: Final = 10.0
"""The same where ranks wait for a rank table, which is made of them."""


def want_chip_notes(snapshot: JobSnapshot) -> Wants:
    """Want the annotations of whole-node pods that have run for a while without them; until then, to look again.

    While a job starts only a rank table is waited for: elsewhere a write for each pod would take its time from the pods
    that are still being made.
    """
    if snapshot.job.spec.scheduling.gang_policy is GangPolicy.VOLCANO or not snapshot.pods_are_known:
        return Wants()
    if snapshot.state.is_untrained and not has_rank_table(snapshot.job.spec):
        return Wants()
    changes, again_at = list[Patch](), inf
    patience = HURRIED_SECONDS if has_rank_table(snapshot.job.spec) else PATIENCE_SECONDS
    for pod, node in _untold_pods(snapshot):
        age = snapshot.wall_seconds - (pod.started_ms or 0) / 1000
        if age < patience:
            again_at = min(again_at, snapshot.now + patience - age)
        elif (patch := _patch_with_chips(pod, node)) is not None:
            changes.append(patch)
    return Wants(changes=tuple(changes), again_at=again_at)


def _untold_pods(snapshot: JobSnapshot) -> Iterator[tuple[PodView, NodeView]]:
    """Yield serving pods that run with all chips of a node whose device plugin has told them, and the node."""
    resource = snapshot.job.spec.accelerator.resource_name
    for pod in snapshot.serving_pods.values():
        node = snapshot.nodes.get(pod.node_name) if pod.has_untold_chips and not pod.deleting else None
        if node is None or pod.phase != "Running" or not node.devices:
            continue
        if dict(pod.requests).get(resource, 0) == (node.all_chips or {}).get(resource):
            yield pod, node


def _patch_with_chips(pod: PodView, node: NodeView) -> Patch | None:
    """Return the patch with the annotations; None where the node's chips cannot be read."""
    devices = parse_base_devices(node.devices)
    if len(devices) != sum(amount for _, amount in pod.requests):
        return None
    super_pod = parse_whole_number(node.labels.get(names.LABEL_NODE_SUPER_POD))
    configuration = {
        "pod_name": pod.name,
        "server_id": pod.uid,
        "host_ip": node.address,
        "super_pod_id": -1 if super_pod is None else super_pod,
        "devices": [
            {"device_id": one.number, "device_ip": one.address, "super_device_id": str(one.super_device)}
            for one in devices
        ],
    }
    annotations = {
        names.ANNOTATION_REAL_CHIPS: ",".join(one.name for one in devices),
        names.ANNOTATION_CONFIGURATION: json.dumps(configuration, separators=(",", ":")),
    }
    return patch_of_pod(pod, {"metadata": {"annotations": annotations}}, settled_by=GONE)
