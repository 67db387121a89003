"""`kubectl hajob survive`: which losses of K nodes at once a job rides out, and how.

Each loss is put to the planner, as `simulate` does for one; the answers are counted by action.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import comb
from typing import Any, Final

from pydantic import ValidationError

from hajob.api.derived import chips_per_node
from hajob.api.job import HATrainingJob
from hajob.api.spec import HATrainingJobSpec
from hajob.cli.cluster import ClusterError
from hajob.cli.exits import run_reported
from hajob.cli.manifests import read_job_manifest
from hajob.cli.nodes import table_of_nodes
from hajob.cli.objects import KubernetesObjects, ReadObjects, find_job
from hajob.cli.options import (
    Commands,
    add_context_option,
    add_fault_namespaces,
    add_namespace,
    add_operator_namespace,
    add_output_option,
    add_verb,
)
from hajob.cli.output import FORMATS, UNKNOWN, Answer, Block, Table, print_answer, resource_name_of_job
from hajob.clock import SystemClock
from hajob.domain.actions import ACTION_ORDER, FAULT_ACTIONS, Action
from hajob.domain.errors import HajobInputError
from hajob.domain.layout import Layout
from hajob.domain.text import counted_noun, first_of_list
from hajob.plan.policy import layout_from_spec
from hajob.plan.simulate import SimulationRequest, SimulationResult, simulate_loss

_MOST_LOSSES: Final = 2_000
"""Losses that are played; of more, so many that are spread evenly over all. Each takes some milliseconds."""
_COLUMNS: Final = ("ACTION", "LOSSES", "COST", "NODE RANKS", "WHY NOT LESS")
_DETAIL: Final = re.compile(r": \[[\d, ]*\]")
"""The numbers behind a sentence that counts for several losses."""
_NODE_ACTIONS_BEGIN: Final = ACTION_ORDER[Action.REPLACE]
_COSTS: Final = {
    Action.RETRY: "the step is repeated",
    Action.IN_PLACE: "no step; new processes in the same pods",
    Action.REPLACE: "no step; the state comes from copies",
    Action.SHRINK: "no step; slower until nodes are back",
    Action.CHECKPOINT: "no step; the last one is saved, then all starts anew",
    Action.RESTART: "the steps since the newest checkpoint",
}
FROM_CHECKPOINT: Final = "the steps since the newest checkpoint; processes that live stay"
"""What a repair costs where no copy of a part of the state is left: every rank loads the checkpoint."""


@dataclass(slots=True)
class Outcome:
    """Losses that have the same answer: the action (None: the job fails) and why nothing smaller works.

    Attributes:
        keeps_copies: whether the ranks that live hold all of the optimizer's state; else a checkpoint has it.
    """

    action: Action | None
    why: str
    keeps_copies: bool
    losses: list[tuple[int, ...]] = field(default_factory=list)


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "survive")
    whose = parser.add_mutually_exclusive_group(required=True)
    whose.add_argument("job", metavar="JOB", nargs="?", help="name of the HATrainingJob")
    whose.add_argument("-f", "--filename", metavar="FILE", help="a manifest instead of a job; needs no cluster")
    parser.add_argument("--nodes", type=int, default=1, metavar="K", help="nodes lost at once (default: %(default)s)")
    parser.add_argument(
        "--free-nodes",
        type=int,
        metavar="N",
        help="free nodes for replacements (default: those of the cluster now; of a manifest 0)",
    )
    add_namespace(parser)
    add_fault_namespaces(parser)
    add_operator_namespace(parser)
    add_context_option(parser)
    add_output_option(parser, FORMATS)
    parser.set_defaults(run=run_survive)


def run_survive(arguments: argparse.Namespace) -> int:
    """Print what would become of every loss."""

    def print_losses() -> None:
        notes: list[str] = []
        free = arguments.free_nodes or 0
        if arguments.filename:
            name, spec = arguments.filename, read_job_manifest(arguments.filename)
        else:
            objects, name = KubernetesObjects(context=arguments.context), arguments.job
            spec = spec_of_job(objects, arguments.namespace or objects.namespace, name)
            if arguments.free_nodes is None:
                namespaces = (arguments.operator_namespace, *arguments.fault_namespaces.split(","))
                free, notes = free_nodes_for(objects, spec, namespaces, SystemClock().now_milliseconds())
        print_answer(answer_for_losses(name, spec, arguments.nodes, free, notes), arguments.output)

    return run_reported(print_losses)


def spec_of_job(objects: ReadObjects, namespace: str, name: str) -> HATrainingJobSpec:
    """Return the spec of a job in a cluster.

    Raises:
        ClusterError: there is no such job, or this version does not understand it.
    """
    try:
        return HATrainingJob.from_object(find_job(objects, namespace, name)).spec
    except ValidationError as problem:
        raise ClusterError(f"{name} is not understood by this version of kubectl-hajob: {problem}") from None


def free_nodes_for(
    objects: ReadObjects, spec: HATrainingJobSpec, namespaces: Sequence[str], now_ms: int
) -> tuple[int, list[str]]:
    """Return how many nodes could take a pod of a job now, and what is to be said of that number.

    Labels, taints and quotas are not looked at: `simulate` and the status of a job that waits tell of them.
    """
    chips, says_how_many = chips_per_node(spec), "--free-nodes N says how many there are"
    try:
        rows = table_of_nodes(objects, spec.accelerator.resource_name, namespaces, now_ms).data
    except ClusterError as refusal:
        return 0, [f"free nodes: {UNKNOWN}, taken as none ({refusal}); {says_how_many}"]
    # Where pods may not be read no node is known to be free, and a guess would promise a recovery.
    if any(row["used"] is None for row in rows):
        right = "needs the right to list pods in all namespaces"
        return 0, [f"free nodes: {UNKNOWN}, taken as none: {right}; {says_how_many}"]
    return sum(row["state"] in {"free", "used"} and row["chips"] - row["used"] >= chips for row in rows), []


def answer_for_losses(
    name: str, spec: HATrainingJobSpec, nodes: int, free_nodes: int, notes: Sequence[str] = ()
) -> Answer:
    """Return what becomes of every loss of so many nodes.

    Raises:
        HajobInputError: the job has not so many nodes.
    """
    layout = layout_from_spec(spec)
    if not 1 <= nodes <= layout.num_nodes:
        raise HajobInputError(f"--nodes {nodes}: {name} has {counted_noun(layout.num_nodes, 'node')}")
    if free_nodes < 0:
        raise HajobInputError(f"--free-nodes {free_nodes}: give 0 or more")
    whole = comb(layout.num_nodes, nodes)
    losses = list(losses_to_play(layout.num_nodes, nodes))
    outcomes = outcomes_of_losses(spec, losses, free_nodes)
    what = "any node" if nodes == 1 else f"any {nodes} nodes at once"
    free, spare = counted_noun(free_nodes, "free node"), counted_noun(spec.scheduling.num_spare_nodes, "spare node")
    told: list[Block] = [f"{name} loses {what} of {layout.num_nodes}; {free}, {spare}"]
    if len(losses) < whole:
        told.append(f"{len(losses)} of {whole:,} possible losses were played, spread evenly")
    told.append(Table(_COLUMNS, [_row_of_outcome(one, len(losses)) for one in outcomes]))
    told += [_verdict_on(outcomes, len(losses)), *notes]
    data = {
        "job": name,
        "nodes": nodes,
        "freeNodes": free_nodes,
        "played": len(losses),
        "possible": whole,
        "outcomes": [_as_json(one) for one in outcomes],
        "notes": list(notes),
    }
    return Answer(told, data, [resource_name_of_job(name)])


def losses_to_play(num_nodes: int, lost: int) -> Iterator[tuple[int, ...]]:
    """Yield the losses, or of too many an even choice."""
    # Losses come in order of their first node: a stride reaches all of them, the first so many would not.
    whole = comb(num_nodes, lost)
    for place in range(0, whole, -(-whole // _MOST_LOSSES)):
        yield _loss_at(place, num_nodes, lost)


def _loss_at(place: int, num_nodes: int, lost: int) -> tuple[int, ...]:
    """Return the loss at this place of all in order, without making those before it: there may be more than atoms."""
    found = list[int]()
    for node in range(num_nodes):
        beginning_here = comb(num_nodes - node - 1, lost - len(found) - 1) if len(found) < lost else 0
        if place < beginning_here:
            found.append(node)
        else:
            place -= beginning_here
    return tuple(found)


def outcomes_of_losses(spec: HATrainingJobSpec, losses: Sequence[tuple[int, ...]], free_nodes: int) -> list[Outcome]:
    """Return the planner's answers to all losses, counted, the smallest action first."""
    found: dict[tuple[Action | None, str], Outcome] = {}
    for loss in losses:
        answer = simulate_loss(spec, SimulationRequest(nodes=loss, free_nodes=free_nodes))
        reason, why = _why_not_less(answer)
        kept = not _lost_together(answer.layout, answer.fault_ranks)
        found.setdefault((answer.action, reason), Outcome(answer.action, why, kept)).losses.append(loss)
    order = [*FAULT_ACTIONS, None]
    return sorted(found.values(), key=lambda one: (order.index(one.action), -len(one.losses)))


def _why_not_less(answer: SimulationResult) -> tuple[str, str]:
    """Return why the job does no better, as a word and for the first such loss as a sentence; both may be empty."""
    if answer.action is None:
        return "Failed", answer.failure
    if answer.action in {Action.REPLACE, Action.RESTART} and (
        holders := _lost_together(answer.layout, answer.fault_ranks)
    ):
        ranks = first_of_list(holders, 4)
        return "CopiesLost", f"all copies of a part of the optimizer are lost, such as that of ranks {ranks}"
    # What a lost node can never do, a step again or new processes in its pods, is no news.
    told = [
        one
        for one in answer.considered
        if not one.taken and _NODE_ACTIONS_BEGIN <= ACTION_ORDER[one.action] < ACTION_ORDER[answer.action]
    ]
    if not told:
        return "", ""
    first = told[-1].refusals[0]
    return first.name, _DETAIL.sub("", first.message)


def _lost_together(layout: Layout, lost: Sequence[int]) -> tuple[int, ...]:
    # One shard whose holders are all gone is enough: there is no state to go on with.
    gone = set(lost)
    for rank in lost:
        for kind in layout.copy_kinds:
            holders = layout.holders_of_shard(rank, kind)
            if gone.issuperset(holders):
                return tuple(sorted(holders))
    return ()


def _row_of_outcome(one: Outcome, played: int) -> tuple[str, ...]:
    shown = first_of_list(["+".join(map(str, loss)) for loss in one.losses], 6)
    cost = _COSTS[one.action] if one.action is not None else "everything since the newest checkpoint"
    if one.action is Action.REPLACE and not one.keeps_copies:
        cost = FROM_CHECKPOINT
    return one.action or "the job fails", f"{len(one.losses)} of {played}", cost, shown, one.why


def _verdict_on(outcomes: Sequence[Outcome], played: int) -> str:
    saved = sum(len(one.losses) for one in outcomes if one.keeps_copies and one.action not in {None, Action.RESTART})
    return f"{100 * saved // played}% of the losses cost no step"


def _as_json(one: Outcome) -> dict[str, Any]:
    state = "Copies" if one.keeps_copies else "Checkpoint"
    return {"action": one.action, "state": state, "why": one.why, "losses": [list(loss) for loss in one.losses]}
