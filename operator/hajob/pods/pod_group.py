"""The PodGroups of a job under `gangPolicy: Volcano`: one of its ranks, one of its spares, and what pods need of them.

Volcano places the pods of a group together, and Huawei's plugin in it reads number and kind of the chips from the group
alone (docs/admin/schedulers.md). The coordinator is in none: the plugin would give it a node rank.
"""

from typing import Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.derived import chips_per_node
from hajob.api.enums import Framework, Product
from hajob.api.job import HATrainingJob
from hajob.pods.naming import owner_references, pod_group_name

_LEFT: Final = "left"
_POLICIES: Final = {Product.A2: "chip8-node8", Product.A3: "chip2-node16"}
"""Without one the plugin applies the rules of its oldest product. The words are the plugin's, by chips of a board and
of a node."""
_A2_BOX_CHIPS: Final = 16
_A2_BOX_POLICY: Final = "chip8-node16"
_FRAMEWORKS: Final = {Framework.PYTORCH: "pytorch", Framework.MINDSPORE: "mindspore"}
"""As ClusterD reads them."""


def build_pod_group(job: HATrainingJob, role: str, members: int, *, in_blocks: bool = False) -> Json:
    """Build the PodGroup of the job's pods of a role, ready to be created.

    Args:
        job: the job, with its UID and the number of nodes that it is started with.
        role: rank or spare (`hajob.api.constants`).
        members: number of pods that are placed together or not at all.
        in_blocks: they are placed in blocks of super pods now.
    """
    chips, pods = chips_per_node(job.spec), job.spec.num_nodes if role == names.ROLE_RANK else 1
    spec: Json = {
        "minMember": members,
        # Of the full size for the life of the group, whatever becomes of minMember: on super pods the plugin refuses
        # every pod of a job whose sum is no multiple of the block.
        "minResources": {job.spec.accelerator.resource_name: str(chips * pods)},
        "queue": queue_name(job),
    }
    if priority_class := job.spec.template["spec"].get("priorityClassName"):
        spec["priorityClassName"] = priority_class
    return {
        "apiVersion": names.VOLCANO_API_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": pod_group_name(job, role),
            "namespace": job.metadata.namespace,
            "labels": {
                names.LABEL_JOB_NAME: job.metadata.name,
                names.LABEL_JOB_UID: job.metadata.uid,
                names.LABEL_ROLE: role,
                "framework": _FRAMEWORKS[job.spec.framework],
            },
            "annotations": {key: value for key, value in policy_annotations(job, in_blocks=in_blocks).items() if value},
            # An owner that is no controller ends the plugin's scheduler with an error, for all jobs of the cluster.
            "ownerReferences": owner_references(job),
        },
        "spec": spec,
    }


def policy_annotations(job: HATrainingJob, *, in_blocks: bool) -> dict[str, str | None]:
    """Return the annotations of a PodGroup that say how nodes are chosen; None: it is to have none.

    Only a whole job is placed in blocks. As long as the plugin is asked for blocks it places a single pod only where
    there is room for all blocks of its job once more, and in any super pod.
    """
    policy, block = _schedule_policy(job), None
    if in_blocks:
        policy, block = f"{policy}-sp", str(job.spec.accelerator.super_pod_chips)
    return {names.ANNOTATION_SCHEDULE_POLICY: policy, names.ANNOTATION_SUPER_POD_BLOCK: block}


def queue_name(job: HATrainingJob) -> str:
    """Return the queue of Volcano in which the job waits."""
    return job.spec.scheduling.queue_name or names.VOLCANO_DEFAULT_QUEUE


def put_into_group(pod: Json, job: HATrainingJob, role: str) -> None:
    """Make a built pod one of the group of this role, placed by Volcano."""
    pod["spec"].setdefault("schedulerName", names.VOLCANO_SCHEDULER)
    annotations = pod["metadata"].setdefault("annotations", {})
    annotations[names.ANNOTATION_GROUP_NAME] = pod_group_name(job, role)


def left_group_name(group: str) -> str:
    """Return the name of the group, which does not exist, into which a pod goes that leaves this one.

    It is renamed and not removed: whoever has no group is given one by Volcano's controller.
    """
    return f"{group}-{_LEFT}"


def _schedule_policy(job: HATrainingJob) -> str:
    if job.spec.accelerator.product is Product.A2 and chips_per_node(job.spec) == _A2_BOX_CHIPS:
        return _A2_BOX_POLICY
    return _POLICIES[job.spec.accelerator.product]
