"""`kubectl hajob migrate`: move a job off nodes while it trains on.

The word goes into the job's spec (`scheduling.excludedNodeNames`): the operator makes second pods first, on spare nodes
where there are any, has MindIO switch over and ends the old pods last. A move that cannot be made, or fails, leaves the
training alone and is told by `Degraded=True, reason MoveFailed`.
"""

import argparse
from collections.abc import Sequence
from typing import Final

from hajob.cli.cluster import ClusterError, ForbiddenError
from hajob.cli.control import answer_of_order
from hajob.cli.exits import run_reported
from hajob.cli.objects import NODES, KubernetesObjects, Objects, find_job, path_of_job
from hajob.cli.options import Commands, add_context_option, add_namespace, add_output_option, add_verb
from hajob.cli.output import FORMATS, print_answer
from hajob.sources.reading import items, mapping

_MOST_NODES: Final = 256  # the CRD admits no more in spec.scheduling.excludedNodeNames


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "migrate")
    parser.add_argument("job", metavar="JOB", help="name of the HATrainingJob")
    parser.add_argument(
        "--off", action="append", required=True, metavar="NODE", help="node to leave; repeat the option for more"
    )
    parser.add_argument("--undo", action="store_true", help="let the job use these nodes again")
    add_namespace(parser)
    add_context_option(parser)
    add_output_option(parser, FORMATS)
    parser.set_defaults(run=run_migrate)


def run_migrate(arguments: argparse.Namespace) -> int:
    """Ask for the move; 1 where the cluster refuses."""

    def print_migration() -> None:
        objects = KubernetesObjects(context=arguments.context)
        namespace = arguments.namespace or objects.namespace
        told = write_excluded_nodes(objects, namespace, arguments.job, arguments.off, undo=arguments.undo)
        print_answer(answer_of_order(namespace, arguments.job, told), arguments.output)

    return run_reported(print_migration)


def write_excluded_nodes(
    objects: Objects, namespace: str, job: str, nodes: Sequence[str], *, undo: bool = False
) -> str:
    """Write which nodes the job is to leave; returns what was done, in a sentence.

    Raises:
        ClusterError: the cluster refuses, or there is no such job or node.
        ValueError: the job would exclude more nodes than it may.
    """
    path, found = path_of_job(namespace, job), find_job(objects, namespace, job)
    before = list(items(mapping(mapping(found.get("spec")).get("scheduling")).get("excludedNodeNames")))
    after = [one for one in before if one not in nodes] if undo else list(dict.fromkeys([*before, *nodes]))
    if len(after) > _MOST_NODES:
        raise ValueError(f"a job can exclude at most {_MOST_NODES} nodes, not {len(after)}: --undo some first")
    unseen = "" if undo else _describe_unseen(objects, [one for one in after if one not in before])
    if after == before:
        return f"nothing changes: the job {'may use' if undo else 'already excludes'} {', '.join(nodes)}"
    version = mapping(found.get("metadata")).get("resourceVersion")
    body = {"metadata": {"resourceVersion": version}, "spec": {"scheduling": {"excludedNodeNames": after}}}
    objects.patch_object(path, body)
    if undo:
        return f"{namespace}/{job} may use {', '.join(nodes)} again"
    watch = f"kubectl get hajob {job} -n {namespace} -w"
    return f"{namespace}/{job} leaves {', '.join(nodes)}{unseen}; watch it with: {watch}"


def _describe_unseen(objects: Objects, nodes: Sequence[str]) -> str:
    """Return what is to be said of nodes that may not be looked at; ClusterError: one is not there."""
    try:
        missing = [node for node in nodes if objects.find_object(f"{NODES}/{node}") is None]
    except ForbiddenError:
        return " (whether there is such a node could not be looked up: that needs the right to get nodes)"
    if missing:
        raise ClusterError(f"there is no node {', '.join(missing)}: kubectl get nodes names them")
    return ""
