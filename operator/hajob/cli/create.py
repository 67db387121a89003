"""`kubectl hajob create`: a whole manifest from a few options, printed or applied."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any, Final

import yaml

from hajob.api import constants as names
from hajob.api.enums import Product
from hajob.cli.cluster import ClusterError
from hajob.cli.exits import run_reported
from hajob.cli.language import say
from hajob.cli.lint import findings_of_job
from hajob.cli.lint_pods import ERROR
from hajob.cli.objects import KubernetesObjects, Objects, path_of_job
from hajob.cli.options import Commands, add_context_option, add_namespace, add_verb
from hajob.domain.errors import HajobInputError

if TYPE_CHECKING:
    from hajob.api.base import Json

_DEGREES: Final = ("tensor", "pipeline", "context", "expert")
_MEMORY_VOLUME: Final = "memory"
_SHARED_VOLUME: Final = "shared"


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "create")
    parser.add_argument("name", metavar="NAME", help="name of the job: at most 40 lower-case letters, digits, dashes")
    parser.add_argument("--image", required=True, metavar="IMAGE", help="image of the training")
    parser.add_argument(
        "--command",
        required=True,
        metavar="COMMAND",
        help="start script of a node, as a shell reads it; it calls torchrun or msrun",
    )
    parser.add_argument("--nodes", type=int, required=True, metavar="N", help="number of nodes")
    parser.add_argument("--product", choices=[*Product], default=Product.A2, help="of the nodes (default: %(default)s)")
    parser.add_argument("--chips", type=int, metavar="N", help="chips of each node (default: 8 on A2, 16 on A3)")
    for degree in _DEGREES:
        required = degree == "tensor"
        told = f"{degree}-parallel ranks" + ("" if required else " (default: %(default)s)")
        # --context chooses the cluster, as in every command.
        option = "--context-parallel" if degree == "context" else f"--{degree}"
        parser.add_argument(
            option, dest=f"{degree}_size", type=int, required=required, default=1, metavar="N", help=told
        )
    parser.add_argument("--pvc", required=True, metavar="CLAIM", help="claim of the volume that all nodes share")
    parser.add_argument(
        "--checkpoint",
        default="/ckpt",
        metavar="PATH",
        help="where that volume is mounted and checkpoints are kept (default: %(default)s)",
    )
    parser.add_argument("--workdir", metavar="PATH", help="working directory of the start script")
    parser.add_argument("--spares", type=int, default=0, metavar="N", help="spare nodes (default: %(default)s)")
    parser.add_argument("--apply", action="store_true", help="create the job instead of printing its manifest")
    add_namespace(parser)
    add_context_option(parser)
    parser.set_defaults(run=run_create)


def run_create(arguments: argparse.Namespace) -> int:
    """Print the manifest, or create the job."""

    def create() -> None:
        made = job_from_options(arguments)
        if not arguments.apply:
            print(yaml.safe_dump(made, sort_keys=False), end="")
            return
        objects = KubernetesObjects(context=arguments.context)
        say(create_job(objects, arguments.namespace or objects.namespace, made))

    return run_reported(create)


def job_from_options(arguments: argparse.Namespace) -> Json:
    """Return the job that the options describe.

    Raises:
        HajobInputError: it would be refused; says why.
    """
    made = _build_job(arguments)
    refused = [one["message"] for one in findings_of_job(made) if one["grade"] == ERROR]
    if refused:
        raise HajobInputError("; ".join(refused))
    return made


def _build_job(arguments: argparse.Namespace) -> Json:
    try:
        command = shlex.split(arguments.command)
    except ValueError as problem:
        raise HajobInputError(f"--command {arguments.command}: {problem}") from None
    metadata: Json = {"name": arguments.name}
    if arguments.namespace:
        metadata["namespace"] = arguments.namespace
    accelerator: Json = {"product": str(arguments.product)}
    if arguments.chips is not None:
        accelerator["chipsPerNode"] = arguments.chips
    # What has its default is left out: a short manifest shows what is particular about a job.
    degrees = {degree: getattr(arguments, f"{degree}_size") for degree in _DEGREES}
    spec: Json = {
        "accelerator": accelerator,
        "numNodes": arguments.nodes,
        "parallelism": {degree: size for degree, size in degrees.items() if size != 1 or degree == "tensor"},
        "checkpoint": {"path": arguments.checkpoint},
    }
    if arguments.spares:
        spec["scheduling"] = {"numSpareNodes": arguments.spares}
    spec["template"] = {"spec": _pod_spec(arguments, command)}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec}


def _pod_spec(arguments: argparse.Namespace, command: list[str]) -> Json:
    trainer: dict[str, Any] = {"name": names.TRAINER_CONTAINER, "image": arguments.image}
    if arguments.workdir:
        trainer["workingDir"] = arguments.workdir
    trainer["command"] = command
    trainer["volumeMounts"] = [
        {"name": _SHARED_VOLUME, "mountPath": arguments.checkpoint},
        # Data loaders hand batches over in shared memory; a container has 64 MB of it by itself.
        {"name": _MEMORY_VOLUME, "mountPath": "/dev/shm"},
    ]
    volumes = [
        {"name": _SHARED_VOLUME, "persistentVolumeClaim": {"claimName": arguments.pvc}},
        {"name": _MEMORY_VOLUME, "emptyDir": {"medium": "Memory"}},
    ]
    return {"containers": [trainer], "volumes": volumes}


def create_job(objects: Objects, namespace: str, made: Json) -> str:
    """Create a job; return what follows.

    Raises:
        ClusterError: there is one of this name, or the cluster refuses.
    """
    name = made["metadata"]["name"]
    path = path_of_job(namespace, name)
    if objects.find_object(path) is not None:
        raise ClusterError(f"there is a HATrainingJob {name} in namespace {namespace} already")
    objects.create_object(path.rpartition("/")[0], made)
    return f"{namespace}/{name} is created; watch it with: kubectl hajob watch {name} -n {namespace}"
