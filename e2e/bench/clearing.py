"""What a broken section leaves behind and the sections after it would break of: jobs, and nodes off or frozen."""

from __future__ import annotations

from e2e.bench.recoveries import RECOVERY_SECONDS, wait_ready
from e2e.harness.cluster_rig import ClusterRig
from e2e.harness.job import GROUP
from e2e.nodes.control import NodeControl
from hajob.api import constants as names


def clear(cluster_rig: ClusterRig) -> None:
    """Delete all jobs, boot every node that is off or frozen, and wait until no pod is left and these are ready.

    Nodes boot before the pods are waited for: those on them may go only then.

    Raises:
        ControlPlaneError: A job, a pod or a node takes longer than RECOVERY_SECONDS.
        ControlError: A node does not boot.
        OSError: Nobody answers.
    """
    api, namespaces = cluster_rig.plane.api, f"namespaces/{cluster_rig.namespace}"
    jobs, pods = f"{GROUP}/{namespaces}/{names.PLURAL}", f"/api/v1/{namespaces}/pods"
    for job in api.items(jobs):
        api.delete(f"{jobs}/{job['metadata']['name']}")
    off = _nodes_off(cluster_rig)
    for node in off:
        cluster_rig.nodes.control.power_on(node)
    cluster_rig.plane.wait("the jobs to be gone", lambda: not api.items(jobs), RECOVERY_SECONDS)
    cluster_rig.plane.wait(
        "the pods to be gone", lambda: not api.items(pods, labelSelector=names.LABEL_JOB_NAME), RECOVERY_SECONDS
    )
    for node in off:
        wait_ready(cluster_rig, node)


def _nodes_off(cluster_rig: ClusterRig) -> list[str]:
    """By their control: the API shows such a node as ready until its Lease has run out.

    Real nodes have nobody to be asked. There, the one section that switches nodes off is measured last.
    """
    control = cluster_rig.nodes.control
    if not isinstance(control, NodeControl):
        return []
    return [str(node["name"]) for node in control.state()["nodes"] if not node["power"]]
