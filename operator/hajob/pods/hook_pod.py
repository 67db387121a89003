"""The pod that does the work of a planned pause on one node: the admin's template, bound to the node.

It is bound by name and not by the scheduler, because the node's chips are the job's: the work may need them, and there
is room for nobody else. It tolerates every taint, so that a cordoned node can be tested, too.
"""

import copy

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.pods import containers as parts
from hajob.pods.naming import hook_pod_name, labels_of_pod, owner_references


def build_hook_pod(job: HATrainingJob, node_rank: int, node_name: str, incarnation: int) -> Json:
    """Build the pod that does the work of a pause on the node of a node rank.

    Raises:
        ValueError: the job asks for no such work.
        TypeError, AttributeError, KeyError: the template is no pod.
    """
    asked = job.spec.pause
    if asked is None or asked.template is None:
        raise ValueError(f"{job.metadata.name}: spec.pause has no template")
    template: Json = copy.deepcopy(asked.template)
    metadata, spec = template.get("metadata") or {}, template["spec"]
    own = parts.env_variables({"HAJOB_NODE_NAME": node_name, "HAJOB_NODE_RANK": str(node_rank)})
    main = parts.container_named(names.HOOK_CONTAINER, spec["containers"]) or spec["containers"][0]
    main["name"] = names.HOOK_CONTAINER  # its exit code is the verdict
    main["env"] = [*(main.get("env") or []), *own]
    spec |= {
        "nodeName": node_name,
        "restartPolicy": "Never",
        "tolerations": [{"operator": "Exists"}],
        "activeDeadlineSeconds": asked.timeout_seconds,
    }
    labels = labels_of_pod(job, names.ROLE_HOOK, incarnation) | {names.LABEL_NODE_RANK: str(node_rank)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": hook_pod_name(job, node_rank, incarnation),
            "namespace": job.metadata.namespace,
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": metadata.get("annotations") or {},
            "ownerReferences": owner_references(job),
        },
        "spec": spec,
    }
