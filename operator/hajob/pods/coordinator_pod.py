"""The coordinator pod: MindIO's controller and the rendezvous store, on a node that carries no rank of the job.

The container `controller` runs the user's own image, so that controller and ranks always have the same MindIO; it
asks for no chip, and of the template it takes what makes the image run: environment, pull secrets, service account
and security settings. Volumes and node selector are left out, because they lead to the nodes of the ranks.
"""

import copy
from collections.abc import Collection
from typing import Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.derived import coordinator_ports
from hajob.api.enums import GangPolicy, Launcher
from hajob.api.job import HATrainingJob
from hajob.domain.patience import MINDIO_WAIT_SECONDS
from hajob.pods import containers as parts
from hajob.pods.affinity import coordinator_affinity, with_node_loss_tolerations
from hajob.pods.naming import coordinator_pod_name, labels_of_pod, owner_references
from hajob.pods.settings import PodSettings

_INHERITED: Final = (
    "imagePullSecrets",
    "serviceAccount",
    "serviceAccountName",
    "securityContext",
    "schedulerName",
    "priorityClassName",
    "hostNetwork",
    "dnsPolicy",
    "dnsConfig",
)
_CONTROLLER_RESOURCES: Final[Json] = {"requests": {"cpu": "100m", "memory": "256Mi"}}

_SIDECAR_MILLICPUS: Final = 50
_MILLICPUS_PER_NODE: Final = 0.5
"""Measured with 2,048 agents: 0.6 of a core (docs/internals/benchmarks.md)."""


def _sidecar_resources(job: HATrainingJob) -> Json:
    """What the coordinator needs for its agents' heartbeats."""
    millicpus = max(_SIDECAR_MILLICPUS, int(_MILLICPUS_PER_NODE * job.spec.num_nodes))
    return {"requests": {"cpu": f"{millicpus}m", "memory": "64Mi"}}


def _coordinator_variables(job: HATrainingJob, settings: PodSettings, incarnation: int) -> list[Json]:
    ports = coordinator_ports(job.spec)
    own = {
        **parts.job_variables(job, settings, incarnation),
        "HAJOB_MINDIO_PORT": str(ports.controller),
        "HAJOB_RENDEZVOUS_PORT": str(ports.store),
        "HAJOB_NUM_NODES": str(job.spec.num_nodes),
        "MINDX_TASK_ID": job.metadata.uid,
        "MINDIO_WAIT_MINDX_TIME": str(MINDIO_WAIT_SECONDS),
    }
    return [*parts.env_variables(own), *parts.env_of_pod_fields()]


def _coordinator_container(job: HATrainingJob, settings: PodSettings, incarnation: int) -> Json:
    """The sidecar that drives the controller and dials the agents."""
    own = parts.env_variables(
        {
            "HAJOB_COORDINATOR_PORT": str(job.spec.network.coordinator_port),
            "HAJOB_SAVING_FUNCTIONS": settings.saving_functions,
            "HAJOB_TLS_DIR": settings.tls_directory,
            "HAJOB_TOKEN_FILE": f"{settings.token_directory}/{parts.TOKEN_FILE}",
        }
    )
    return parts.sidecar_container(
        "coordinator",
        ["-m", "trainer_sidecar.coordinator"],
        job,
        settings,
        env=[*_coordinator_variables(job, settings, incarnation), *own],
        mounts=[
            parts.volume_mount(parts.SHARED_VOLUME, settings.shared_directory),
            parts.volume_mount(parts.TLS_VOLUME, settings.tls_directory, read_only=True),
            parts.volume_mount(parts.TOKEN_VOLUME, settings.token_directory, read_only=True),
        ],
        resources=parts.resources_or(job.spec.agent.resources, settings.resources or _sidecar_resources(job)),
    )


def _controller_container(job: HATrainingJob, settings: PodSettings, incarnation: int) -> Json:
    """The training image with Hajob's controller host as its only process."""
    trainer = parts.trainer_container(job.spec.template["spec"])
    ports = coordinator_ports(job.spec)
    own = _coordinator_variables(job, settings, incarnation)
    own += parts.env_variables(parts.mindio_tls_variables(job, settings))
    declared = {names.COORDINATOR_PORT_NAME: ports.coordinator, "controller": ports.controller, "store": ports.store}
    container: Json = {
        "name": "controller",
        "image": trainer.get("image", ""),
        "command": [job.spec.coordinator.python_path or "python3", "$(HAJOB_DIR)/controller_host.pyz"],
        "env": parts.with_user_variables(own, trainer.get("env") or []),
        "ports": parts.container_ports(job.spec, declared),
        "volumeMounts": [
            parts.volume_mount(parts.SHARED_VOLUME, settings.shared_directory),
            *parts.mindio_tls_mounts(job, settings),
        ],
        "resources": parts.resources_or(job.spec.coordinator.resources, _CONTROLLER_RESOURCES),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    for inherited in ("imagePullPolicy", "envFrom", "securityContext"):
        if inherited in trainer:
            container[inherited] = copy.deepcopy(trainer[inherited])
    return container


def _containers_of_pod(job: HATrainingJob, settings: PodSettings, incarnation: int) -> Json:
    """The controller's container with the sidecar beside it; alone where the controller is in TaskD's manager."""
    coordinator = _coordinator_container(job, settings, incarnation)
    if job.spec.launcher is Launcher.TASKD:
        return {"containers": [coordinator]}
    return {
        "initContainers": [parts.install_container(job, settings), {**coordinator, "restartPolicy": "Always"}],
        "containers": [_controller_container(job, settings, incarnation)],
    }


def coordinator_pod(
    job: HATrainingJob,
    incarnation: int,
    settings: PodSettings,
    avoided: Collection[str] = (),
    *,
    silent: Collection[str] = (),
    apart: bool = True,
) -> Json:
    """Build the coordinator pod, ready to be created.

    Args:
        job: the job, with its UID.
        incarnation: of the attempt that makes the pod; name and label carry it.
        settings: images, ports and paths of the installation.
        avoided: names of nodes on which nothing new is placed. The pod takes one all the same where nothing else fits,
            because nobody would recreate it once that node is well again.
        silent: names of nodes that may be dead though they look ready; while it is to be `apart`, it takes none.
        apart: False lets it share a node with a rank, for a cluster where nothing else fits.
    """
    template: Json = job.spec.template["spec"]
    chosen = job.spec.coordinator
    labels = labels_of_pod(job, names.ROLE_COORDINATOR, incarnation)
    labels[names.LABEL_PLACEMENT] = names.PLACEMENT_APART if apart else names.PLACEMENT_ANYWHERE
    spec: Json = {name: copy.deepcopy(template[name]) for name in _INHERITED if name in template}
    if job.spec.scheduling.gang_policy is GangPolicy.VOLCANO:
        spec.pop("schedulerName", None)  # in no group: neither its chips nor its end concern those of the ranks
    spec |= parts.pull_secrets(template, settings)
    volumes = [parts.shared_volume(), parts.tls_volume(job, "coordinator"), *parts.mindio_tls_volumes(job)]
    spec |= _containers_of_pod(job, settings, incarnation)
    spec |= {
        "volumes": [*volumes, parts.token_volume(settings)],
        "affinity": coordinator_affinity(job, avoided, silent, apart=apart, topology=settings.topology_label),
        "tolerations": with_node_loss_tolerations([entry.to_json() for entry in chosen.tolerations]),
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": settings.coordinator_grace_seconds,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
    }
    if chosen.node_selector:
        spec["nodeSelector"] = dict(chosen.node_selector)
    if chosen.priority_class_name:
        spec["priorityClassName"] = chosen.priority_class_name
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": coordinator_pod_name(job, incarnation, apart=apart),
            "namespace": job.metadata.namespace,
            "labels": labels,
            "ownerReferences": owner_references(job),
        },
        "spec": spec,
    }
