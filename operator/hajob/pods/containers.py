"""Pieces that rank pods and coordinator pods share: Hajob's own containers, variables and volumes."""

import copy
from collections.abc import Iterable
from typing import Final

from hajob import log_format
from hajob.api.base import Json
from hajob.api.constants import (
    COORDINATOR_TOKEN_AUDIENCE,
    RANK_TABLE_DIRECTORY,
    RANK_TABLE_FILE,
    RANK_TABLE_VOLUME,
    TRAINER_CONTAINER,
)
from hajob.api.derived import chips_per_node, has_rank_table, is_on_the_host, world_size_of
from hajob.api.enums import Launcher, MindIOTLSPolicy
from hajob.api.job import HATrainingJob
from hajob.api.spec import HATrainingJobSpec, Resources
from hajob.pods.naming import tls_secret_name
from hajob.pods.settings import PodSettings

AGENT_CONTAINER: Final = "agent"
SHARED_VOLUME: Final = "hajob"
TLS_VOLUME: Final = "hajob-tls"
MINDIO_TLS_VOLUME: Final = "hajob-mindio-tls"
TOKEN_VOLUME: Final = "hajob-token"
TOKEN_FILE: Final = "token"
MINDIO_TLS_FILES: Final = {"mindio-ca.crt": "ca.crt", "mindio.crt": "tls.crt", "mindio.key": "tls.key"}
_PYTHON: Final = "python3"

# Small on purpose: they serve one node and one job. Memory has no limit, because being killed for it costs a job.
_DEFAULT_RESOURCES: Final[Json] = {"requests": {"cpu": "50m", "memory": "64Mi"}}


def env_variables(values: dict[str, str]) -> list[Json]:
    """Build `env` entries with fixed values."""
    return [{"name": name, "value": value} for name, value in values.items()]


def env_of_pod_fields() -> list[Json]:
    """Build the `env` entries that a container can only learn from its pod: address, name and UID."""
    fields = {"POD_IP": "status.podIP", "POD_NAME": "metadata.name", "POD_UID": "metadata.uid"}
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]


def job_variables(job: HATrainingJob, settings: PodSettings, incarnation: int) -> dict[str, str]:
    """Return the variables that tell a container its job, and the job's sizes and ports."""
    network = job.spec.network
    return {
        "HAJOB_DIR": settings.shared_directory,
        "HAJOB_JOB_UID": job.metadata.uid,
        "HAJOB_WORLD_SIZE": str(world_size_of(job.spec)),
        "HAJOB_RANKS_PER_NODE": str(chips_per_node(job.spec)),
        "HAJOB_INCARNATION": str(incarnation),
        "HAJOB_AGENT_PORT": str(network.agent_port),
        "HAJOB_MINDIO_PORT": str(network.mindio_port),
        "HAJOB_RENDEZVOUS_PORT": str(network.rendezvous_port),
        "HAJOB_FRAMEWORK": str(job.spec.framework),
        **launcher_variable(job.spec),
    }


def launcher_variable(spec: HATrainingJobSpec) -> dict[str, str]:
    """Return the variable that tells Hajob's parts that TaskD starts the ranks; nothing where Hajob does."""
    return {"HAJOB_LAUNCHER": str(spec.launcher)} if spec.launcher is Launcher.TASKD else {}


def with_user_variables(ours: list[Json], users: list[Json]) -> list[Json]:
    """Put Hajob's variables first, so that the user's can refer to them; where both name one, Hajob's counts."""
    taken = {entry["name"] for entry in ours}
    return [*ours, *(copy.deepcopy(entry) for entry in users if entry.get("name") not in taken)]


def volume_mount(volume: str, path: str, *, read_only: bool = False) -> Json:
    """Build a volume mount."""
    entry: Json = {"name": volume, "mountPath": path}
    if read_only:
        entry["readOnly"] = True
    return entry


def resources_or(chosen: Resources, default: Json | None = None) -> Json:
    """Return the resources that the user chose, or the defaults."""
    written = {name: value for name, value in chosen.to_json().items() if value}
    return written or copy.deepcopy(default or _DEFAULT_RESOURCES)


def security_context(job: HATrainingJob, settings: PodSettings) -> Json:
    """Build the security context that Pod Security `restricted` asks for, with the installation's differences.

    If the template says that the pod runs as root, it stays so: Hajob's containers write where the user's do.
    """
    pod: Json = job.spec.template["spec"].get("securityContext") or {}
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": pod.get("runAsUser") != 0,
        "seccompProfile": {"type": "RuntimeDefault"},
        **settings.security_context,
    }


def pull_secrets(template_spec: Json, settings: PodSettings) -> Json:
    """Build `imagePullSecrets` of a pod: the template's and the installation's; nothing where there are none."""
    names = [*(template_spec.get("imagePullSecrets") or []), *({"name": each} for each in settings.image_pull_secrets)]
    return {"imagePullSecrets": list({each.get("name"): each for each in names}.values())} if names else {}


def sidecar_container(
    name: str,
    arguments: list[str],
    job: HATrainingJob,
    settings: PodSettings,
    *,
    env: list[Json],
    mounts: list[Json],
    resources: Json,
) -> Json:
    """Build a container of the sidecar image."""
    return {
        "name": name,
        "image": settings.sidecar_image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": [_PYTHON, *arguments],
        "env": [*env, *_log_format_variable(settings)],
        "volumeMounts": mounts,
        "resources": resources,
        "securityContext": security_context(job, settings),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _log_format_variable(settings: PodSettings) -> list[Json]:
    """Nothing for the usual one: what most pods say is short."""
    return env_variables({log_format.VARIABLE: settings.log_format}) if settings.log_format != "text" else []


def install_container(job: HATrainingJob, settings: PodSettings) -> Json:
    """Build the container that copies launcher, controller host and shims to where the training image finds them."""
    return sidecar_container(
        "install",
        ["-m", "trainer_sidecar.install", "$(HAJOB_DIR)"],
        job,
        settings,
        env=env_variables({"HAJOB_DIR": settings.shared_directory}),
        mounts=[volume_mount(SHARED_VOLUME, settings.shared_directory)],
        resources=copy.deepcopy(settings.resources or _DEFAULT_RESOURCES),
    )


def shared_volume() -> Json:
    """Build the volume that Hajob's containers share with the user's."""
    return {"name": SHARED_VOLUME, "emptyDir": {}}


def tls_volume(job: HATrainingJob, identity: str) -> Json:
    """Build the volume with the CA and the certificate of one identity (`agent`, `coordinator`).

    The file names are the same for every identity.
    """
    paths = {"ca.crt": "ca.crt", f"{identity}.crt": "tls.crt", f"{identity}.key": "tls.key"}
    items = [{"key": key, "path": path} for key, path in paths.items()]
    return {"name": TLS_VOLUME, "secret": {"secretName": tls_secret_name(job), "items": items}}


def has_mindio_tls(job: HATrainingJob) -> bool:
    """Return whether MindIO's links are encrypted by its own certificates."""
    return job.spec.network.mindio_tls_policy is MindIOTLSPolicy.ENABLED


def mindio_tls_variables(job: HATrainingJob, settings: PodSettings) -> dict[str, str]:
    """Return the variable that says where MindIO's certificates are; nothing where there are none."""
    return {"HAJOB_MINDIO_TLS_DIR": settings.mindio_tls_directory} if has_mindio_tls(job) else {}


def mindio_tls_mounts(job: HATrainingJob, settings: PodSettings) -> list[Json]:
    """Build the mount of MindIO's certificates; nothing where there are none."""
    return (
        [volume_mount(MINDIO_TLS_VOLUME, settings.mindio_tls_directory, read_only=True)] if has_mindio_tls(job) else []
    )


def mindio_tls_volumes(job: HATrainingJob) -> list[Json]:
    """Build the volume of MindIO's certificates, without the authority's key; nothing where there are none."""
    if not has_mindio_tls(job):
        return []
    items = [{"key": key, "path": path} for key, path in MINDIO_TLS_FILES.items()]
    return [{"name": MINDIO_TLS_VOLUME, "secret": {"secretName": tls_secret_name(job), "items": items}}]


def rank_table_variables(job: HATrainingJob) -> dict[str, str]:
    """Return the variable that names the rank table; nothing where the job has none."""
    return {"RANK_TABLE_FILE": RANK_TABLE_FILE} if has_rank_table(job.spec) else {}


def rank_table_mounts(job: HATrainingJob, *, read_only: bool) -> list[Json]:
    """Build the mount of the rank table's directory; nothing where the job has none."""
    wanted = has_rank_table(job.spec)
    return [volume_mount(RANK_TABLE_VOLUME, RANK_TABLE_DIRECTORY, read_only=read_only)] if wanted else []


def rank_table_volumes(job: HATrainingJob) -> list[Json]:
    """Build the volume of the rank table, which the agent writes; nothing where the job has none."""
    return [{"name": RANK_TABLE_VOLUME, "emptyDir": {}}] if has_rank_table(job.spec) else []


def token_volume(settings: PodSettings) -> Json:
    """Build the volume with the token by which the operator recognizes the coordinator pod; it opens nothing else."""
    source = {
        "path": TOKEN_FILE,
        "audience": COORDINATOR_TOKEN_AUDIENCE,
        "expirationSeconds": settings.token_seconds,
    }
    return {"name": TOKEN_VOLUME, "projected": {"sources": [{"serviceAccountToken": source}]}}


def container_ports(spec: HATrainingJobSpec, ports: dict[str, int]) -> list[Json]:
    """Build the ports of a main container.

    In the node's network they are host ports, so that the scheduler keeps pods with the same port on different nodes.
    The main container declares them whichever process listens: schedulers before 1.32 do not count those of sidecars.
    """
    declared: list[Json] = [{"name": name, "containerPort": port} for name, port in ports.items()]
    if is_on_the_host(spec):
        return [{**entry, "hostPort": entry["containerPort"]} for entry in declared]
    return declared


def container_named(name: str, containers: Iterable[Json]) -> Json | None:
    """Return the container of that name; None where there is none."""
    return next((container for container in containers if container.get("name") == name), None)


def trainer_container(template_spec: Json) -> Json:
    """Return the container that trains, in a pod spec.

    Raises:
        ValueError: there is none; the CRD refuses such a job.
    """
    found = container_named(TRAINER_CONTAINER, template_spec.get("containers") or [])
    if found is not None:
        return found
    raise ValueError(f"spec.template.spec.containers has no container named {TRAINER_CONTAINER}: add one")
