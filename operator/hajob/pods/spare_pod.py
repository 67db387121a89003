"""The pod that holds a spare node: it asks for what a rank pod asks for, and waits.

It runs the training image, so that the image lies on the node when a rank pod comes, and an agent's place beside it; no
volume is mounted and nothing of the user's is run. Its priority is that of the rank pods: one of a lower priority would
be driven out by any pod of anybody (docs/decisions/0029-spare-nodes.md).
"""

import copy
from collections.abc import Collection
from typing import Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.derived import chips_per_node
from hajob.api.enums import GangPolicy, SpareMode
from hajob.api.job import HATrainingJob
from hajob.pods import containers as parts
from hajob.pods.affinity import spare_affinity, with_node_loss_tolerations
from hajob.pods.naming import labels_of_pod, owner_references, spare_pod_name
from hajob.pods.pod_group import put_into_group
from hajob.pods.rank_pod import AGENT_RESOURCES, build_rank_pod
from hajob.pods.settings import PodSettings

_INHERITED: Final = (
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "runtimeClassName",
    "schedulerName",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
)
"""What decides where a pod may go and whether its image is pulled. Resource claims are what its container names."""
_WAIT: Final = "import signal as s; s.pthread_sigmask(s.SIG_BLOCK, {s.SIGTERM}); s.sigwait({s.SIGTERM})"
"""Process 1 is only told of signals that it waits for."""
_GRACE_SECONDS: Final = 5


def build_spare_pod(
    job: HATrainingJob, number: int, settings: PodSettings, excluded_nodes: Collection[str] = ()
) -> Json:
    """Build the pod of spare node `number`, from 0.

    It must not run on `excluded_nodes`, nor on those that the spec excludes.
    """
    warm = job.spec.scheduling.spare_mode is SpareMode.WARM
    build = _build_warm_spare if warm else _build_placeholder
    pod = build(job, number, settings, excluded_nodes)
    if job.spec.scheduling.gang_policy is GangPolicy.VOLCANO:
        put_into_group(pod, job, names.ROLE_SPARE)
    return pod


def _build_placeholder(job: HATrainingJob, number: int, settings: PodSettings, excluded_nodes: Collection[str]) -> Json:
    """A pod that asks for the chips of a node, and waits."""
    template: Json = job.spec.template["spec"]
    trainer = parts.trainer_container(template)
    spec: Json = {name: copy.deepcopy(template[name]) for name in _INHERITED if name in template}
    spec |= parts.pull_secrets(template, settings)
    agent = parts.resources_or(job.spec.agent.resources, settings.resources or AGENT_RESOURCES)
    spec |= {
        "containers": [_trainer_container(job, trainer), _agent_container(job, settings, agent)],
        "affinity": spare_affinity(
            job, template.get("affinity") or {}, excluded_nodes, topology=settings.topology_label
        ),
        "tolerations": with_node_loss_tolerations(template.get("tolerations") or []),
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": spare_pod_name(job, number),
            "namespace": job.metadata.namespace,
            "labels": labels_of_pod(job, names.ROLE_SPARE, 0),
            "ownerReferences": owner_references(job),
        },
        "spec": spec,
    }


def _build_warm_spare(job: HATrainingJob, number: int, settings: PodSettings, excluded_nodes: Collection[str]) -> Json:
    """A rank pod without a node rank: its agent is told with its first order (docs/decisions/0031-warm-spares.md).

    Its start script reads a node rank that the job does not have.
    """
    pod = build_rank_pod(job, job.spec.num_nodes, 0, settings, excluded_nodes)
    metadata, spec = pod["metadata"], pod["spec"]
    metadata["name"] = spare_pod_name(job, number)
    del metadata["labels"][names.LABEL_NODE_RANK], metadata["annotations"][names.ANNOTATION_RANK_INDEX]
    metadata["labels"] |= {names.LABEL_ROLE: names.ROLE_SPARE, names.LABEL_SPARE_MODE: SpareMode.WARM.value}
    template: Json = job.spec.template["spec"]
    spec["affinity"] = spare_affinity(
        job, template.get("affinity") or {}, excluded_nodes, topology=settings.topology_label
    )
    agent = parts.container_named(parts.AGENT_CONTAINER, spec["initContainers"])
    for container in filter(None, (agent, parts.trainer_container(spec))):
        container["env"] = [*parts.env_variables({"HAJOB_SPARE": "true"}), *container["env"]]
    return pod


def _trainer_container(job: HATrainingJob, trainer: Json) -> Json:
    """The image and the chips of the container that trains."""
    resources = copy.deepcopy(trainer.get("resources") or {})
    for side in ("requests", "limits"):
        resources[side] = {
            **(resources.get(side) or {}),
            job.spec.accelerator.resource_name: str(chips_per_node(job.spec)),
        }
    kept: Json = {
        name: copy.deepcopy(trainer[name]) for name in ("imagePullPolicy", "securityContext") if name in trainer
    }
    image = trainer.get("image", "")
    return {"name": "spare", "image": image, "command": ["python3", "-c", _WAIT], "resources": resources, **kept}


def _agent_container(job: HATrainingJob, settings: PodSettings, resources: Json) -> Json:
    return parts.sidecar_container("agent", ["-c", _WAIT], job, settings, env=[], mounts=[], resources=resources)
