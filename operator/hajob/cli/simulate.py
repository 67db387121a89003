"""`kubectl hajob simulate`: show the recovery that Hajob would choose for a loss, without any cluster.

Reads a manifest, asks the planner, prints. Everything that is wrong with the input is said in one line on standard
error, with exit code 2; the answer is always exit code 0, also when it is Restart.
"""

import argparse
from typing import Any, Final

from hajob.api.log_rules import log_rule_notes
from hajob.api.spec import HATrainingJobSpec
from hajob.cli.exits import run_reported
from hajob.cli.language import say
from hajob.cli.manifests import read_job_manifest
from hajob.cli.options import Commands, add_output_option, add_verb
from hajob.cli.output import WITHOUT_NAMES, Answer, print_answer
from hajob.cli.simulated_writes import Write, writes_of_simulation
from hajob.domain.actions import Action
from hajob.domain.errors import MALFORMED, HajobInputError
from hajob.domain.text import number_runs
from hajob.plan.simulate import SimulationRequest, SimulationResult, simulate_loss
from hajob.pods.review import why_not_started

_SHOWN: Final = 16
"""Longer lists are shortened for people; the JSON is whole."""


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "simulate")
    parser.add_argument(
        "-f", "--filename", required=True, metavar="FILE", help="manifest of a HATrainingJob; - reads stdin"
    )
    parser.add_argument(
        "--lose",
        action="append",
        required=True,
        metavar="rank=N|node=N",
        help="the lost rank or node rank; repeat for more",
    )
    parser.add_argument(
        "--free-nodes",
        type=int,
        default=0,
        metavar="N",
        help=(
            "free nodes for replacements, with accelerator.superPodChips in the super pods of the lost blocks "
            "(default: %(default)s, answer as if none becomes free within spec.recovery.replacementTimeoutSeconds)"
        ),
    )
    parser.add_argument(
        "--during",
        type=Action,
        choices=list(Action),
        metavar="ACTION",
        help="the loss comes while this action is running: " + ", ".join(Action),
    )
    add_output_option(parser, WITHOUT_NAMES)
    parser.set_defaults(run=run_simulate)


def run_simulate(arguments: argparse.Namespace) -> int:
    """Print the answer, or say what is wrong with the input."""
    return run_reported(lambda: _print_answer(arguments))


def _print_answer(arguments: argparse.Namespace) -> None:
    spec = read_job_manifest(arguments.filename)
    answer = simulate_loss(spec, read_question(arguments))
    if unserved := _why_not_started(spec):
        say(f"note: the operator does not start this job: {unserved}", to_errors=True)
    for note in filter(None, (answer.protection, log_rule_notes(spec))):
        say(f"note: {note}", to_errors=True)
    print_answer(Answer([answer_as_text(answer)], answer_as_json(answer)), arguments.output)


def _why_not_started(spec: HATrainingJobSpec) -> str:
    try:
        return why_not_started(spec)
    except MALFORMED as error:
        return f"spec.template is no pod: {error}"


def read_question(arguments: argparse.Namespace) -> SimulationRequest:
    """Read the question from the arguments; raises `HajobInputError` for a loss that is none."""
    lost: dict[str, list[int]] = {"rank": [], "node": []}
    for loss in arguments.lose:
        kind, _, number = loss.partition("=")
        if kind not in lost or not number.isdecimal():
            raise HajobInputError(f"--lose {loss}: write rank=N or node=N with the number of a rank or node rank")
        lost[kind].append(int(number))
    return SimulationRequest(tuple(lost["rank"]), tuple(lost["node"]), arguments.free_nodes, arguments.during)


def answer_as_json(answer: SimulationResult) -> dict[str, Any]:
    """Return the answer in JSON types."""
    return {
        "action": answer.action,
        "faultRanks": list(answer.fault_ranks),
        "isolatedRanks": list(answer.isolation.ranks),
        "leavingNodes": list(answer.isolation.nodes),
        "dataParallel": {
            "desired": answer.layout.data,
            "current": answer.current,
            "dropped": list(answer.isolation.dropped),
        },
        "microBatches": list(answer.micro_batches),
        "copies": [{"kind": row.kind, "ranks": list(row.holders)} for row in answer.layout.report_group_list()],
        "refused": {action.value: list(names) for action, names in answer.refused_actions.items()},
        "writes": [_write_as_json(write) for write in writes_of_simulation(answer)],
        **({"blocks": {str(node): block for node, block in answer.blocks.items()}} if answer.blocks else {}),
        **({"spares": {str(node): spare for node, spare in answer.places.items()}} if answer.places else {}),
    }


def _write_as_json(write: Write) -> dict[str, Any]:
    """One write; what does not apply is left out."""
    found: dict[str, Any] = {"verb": write.verb, "resource": write.resource}
    if write.role:
        found["role"] = write.role
    if write.node_rank is not None:
        found["nodeRank"] = write.node_rank
    if write.reason:
        found["reason"] = write.reason
    return found


def answer_as_text(answer: SimulationResult) -> str:
    """Format the answer for people."""
    isolation, layout, written = answer.isolation, answer.layout, writes_of_simulation(answer)
    lines = [
        f"action                    {answer.action or 'none, the job fails: ' + answer.failure}",
        f"fault ranks               {_shorten_runs(answer.fault_ranks)}",
        f"data-parallel ranks       {answer.current} of {layout.data} train on",
        "",
        "a shrink would take",
        f"  data-parallel ranks     {_shorten_runs(isolation.dropped)}",
        f"  isolated ranks          {_shorten_runs(isolation.ranks)}",
        f"  pods that leave         {_shorten_runs(isolation.nodes)}",
    ]
    if not isolation.agrees_with_mindio:
        lines.append(f"  MindIO alone would drop {_shorten_runs(isolation.mindio_ranks)}")
    lines += [
        "",
        f"pods kept                 {_shorten_runs(answer.kept_nodes)}",
        *(f"onto a spare node         node rank {node}: {spare}" for node, spare in sorted(answer.places.items())),
        *(
            f"only in its super pod     node rank {node}: that of block {block}"
            for node, block in list(answer.blocks.items())[:_SHOWN]
        ),
        f"micro batches             {', '.join(map(str, answer.micro_batches[:_SHOWN])) or 'not visible'}",
        *_cost_lines(answer),
        "",
        "actions",
        *(
            f"  {one.action:<12}{'taken  ' if one.taken else 'refused'}  {one.verdict_message}"
            for one in answer.considered
        ),
        "",
        "who holds the same optimizer shard",
        *_copy_group_lines(answer),
        "",
        "where the lost state comes from",
        *_repair_lines(answer),
        "",
        "writes to the Kubernetes API",
        *(f"  {_write_as_text(write)}" for write in written[:_SHOWN]),
    ]
    if len(written) > _SHOWN:
        lines.append(f"  … {len(written) - _SHOWN} more")
    return "\n".join(lines)


def _cost_lines(answer: SimulationResult) -> list[str]:
    """Step time and memory, as far as they are known."""
    lines = []
    if answer.step_time is not None:
        lines.append(f"expected step time        {float(answer.step_time):.2f} times that of the full size")
    if answer.memory is not None:
        each, whole = answer.memory.extra_bytes / 1e9, answer.memory.extra_bytes_total / 1e9
        lines.append(f"memory of the copies      {each:.2f} GB on each chip, {whole:.1f} GB in all")
        lines.append(f"memory of a shrink        up to {answer.memory.elastic / 1e9:.1f} GB more on each chip")
    return lines


def _copy_group_lines(answer: SimulationResult) -> list[str]:
    """Shards that a lost rank holds, with everybody who holds them."""
    layout = answer.layout
    held = [(kind, layout.holders_of_shard(rank, kind)) for rank in answer.fault_ranks for kind in layout.copy_kinds]
    groups = list(dict.fromkeys((kind, tuple(sorted(holders))) for kind, holders in held))
    lines = [f"  {kind.lower():<8}ranks {_shorten_runs(holders)}" for kind, holders in groups[:_SHOWN]]
    return lines if len(groups) <= _SHOWN else [*lines, f"  … {len(groups) - _SHOWN} more"]


def _repair_lines(answer: SimulationResult) -> list[str]:
    lines = [
        f"  rank {one.rank} ({one.kind.lower()}): "
        + (f"rank {one.giver}" if one.giver is not None else "the checkpoint")
        for one in answer.repairs
    ]
    return lines if len(lines) <= _SHOWN else [*lines[:_SHOWN], f"  … {len(lines) - _SHOWN} more"]


def _write_as_text(write: Write) -> str:
    what = f"{write.verb} {write.resource}"
    if write.role:
        which = write.role if write.node_rank is None else f"node rank {write.node_rank}"
        return f"{what} ({which}, incarnation {write.incarnation})"
    return f"{what} ({write.reason})" if write.reason else what


def _shorten_runs(numbers: tuple[int, ...]) -> str:
    """Numbers for people, runs shortened: 0-7, 16-23."""
    runs = number_runs(numbers)
    return ", ".join([*runs[:_SHOWN], *(["…"] if len(runs) > _SHOWN else [])]) or "none"
