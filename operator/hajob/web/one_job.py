"""One job as the page shows it: its grid of nodes and ranks, its curve, its incidents. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from hajob.api.base import Json
from hajob.cli.job_view import JobView, outage_milliseconds
from hajob.cli.objects import ReadObjects, find_job
from hajob.cli.simulate import answer_as_json
from hajob.cli.status import goodput_since_start, pod_state, pods_of
from hajob.cli.survive import free_nodes_for, spec_of_job
from hajob.cli.timeline import what_of
from hajob.cli.watch import Seat, seats_of_job
from hajob.domain.actions import Action
from hajob.plan.policy import layout_from_spec
from hajob.plan.protection import need_of_precondition, remedy_of_precondition
from hajob.plan.simulate import SimulationRequest, SimulationResult, simulate_loss
from hajob.sources.pod import PodView
from hajob.sources.reading import items, mapping, milliseconds_of, parse_whole_number, text
from hajob.web.jobs import row_of_job
from hajob.web.steps import StepHistory

_MOST_COPIES: Final = 262_144
"""Ranks of all copy groups together that are sent to a browser; a job with more is shown without its copies."""
_PLAIN_STATES: Final = frozenset({"ready", "ends", "starts", "running", "waits for a node"})


def whole_job(objects: ReadObjects, steps: StepHistory, namespace: str, name: str, now_ms: int) -> Json:
    """Return everything that the page shows of a job.

    Raises:
        ClusterError: there is no such job, or it may not be read.
    """
    job = JobView(find_job(objects, namespace, name), now_ms)
    pods, unread = pods_of(objects, job)
    buckets = job.seconds_by_bucket()
    return {
        "job": {**row_of_job(job), "shape": _shape_of_job(job)},
        "checkpoint": {
            "step": parse_whole_number(job.progress.get("checkpointStep")),
            "time": text(job.progress.get("checkpointTime")),
        },
        "seats": [] if unread else [_seat_as_json(job, seat) for seat in seats_of_job(job, pods)],
        "others": [_other_as_json(pod) for pod in pods if not pod.is_rank_pod],
        "points": steps.points_of_job(job),
        "buckets": buckets,
        "goodputSinceStart": goodput_since_start(buckets),
        "incidents": [_incident_as_json(one) for one in job.incidents],
        "works": job.working_actions(),
        "unmet": [{"told": told, "remedy": remedy} for told, remedy in job.unmet_preconditions()],
        "notVisible": text(mapping(job.status.get("protection")).get("unknown")),
        "unknown": [unread] if unread else [],
    }


def _shape_of_job(job: JobView) -> Json:
    return {
        "product": text(mapping(job.spec.get("accelerator")).get("product")),
        "numNodes": parse_whole_number(job.spec.get("numNodes")),
        "chipsPerNode": parse_whole_number(mapping(job.status.get("effective")).get("chipsPerNode")),
        "sizes": job.parallel_sizes(),
    }


def _seat_as_json(job: JobView, seat: Seat) -> Json:
    ranks = job.ranks_of_node(seat.node_rank)
    return {
        "nodeRank": seat.node_rank,
        "first": ranks[0],
        "number": len(ranks),
        "node": seat.pod.node_name if seat.pod is not None else "",
        "pod": seat.pod.name if seat.pod is not None else "",
        "does": seat.does,
        "lost": list(seat.lost),
        "state": _what_more_of_pod(seat.pod) if seat.pod is not None else "",
    }


def _what_more_of_pod(pod: PodView) -> str:
    """Return what is to be said of a pod beyond what its ranks do; empty for nothing."""
    told = pod_state(pod)
    return "" if told in _PLAIN_STATES else told


def _other_as_json(pod: PodView) -> Json:
    return {"role": pod.role, "node": pod.node_name, "pod": pod.name, "state": pod_state(pod)}


def _incident_as_json(incident: Mapping[str, Any]) -> Json:
    refused = [mapping(one) for one in items(incident.get("refused"))]
    return {
        "number": incident.get("incarnation"),
        "start": text(incident.get("startTime")),
        "startMilliseconds": milliseconds_of(incident.get("startTime")),
        "end": text(incident.get("endTime")),
        "step": parse_whole_number(incident.get("step")),
        "what": what_of(incident),
        "cause": text(mapping(incident.get("cause")).get("message")),
        "action": text(incident.get("action")),
        "tried": list(map(text, items(incident.get("escalatedFrom")))),
        "outcome": text(incident.get("outcome")),
        "phases": [
            {"name": text(one.get("name")), "milliseconds": parse_whole_number(one.get("milliseconds")) or 0}
            for one in map(mapping, items(incident.get("phases")))
        ],
        "milliseconds": outage_milliseconds(incident),
        "lostSteps": parse_whole_number(incident.get("lostSteps")) or 0,
        "restarts": parse_whole_number(incident.get("restarts")) or 0,
        "from": list(map(text, items(incident.get("fromNodes")))),
        "to": list(map(text, items(incident.get("toNodes")))),
        "refused": [
            {"action": text(one.get("action")), "unmet": list(_unmet_needs_in_words(items(one.get("unmet"))))}
            for one in refused
        ],
    }


def _unmet_needs_in_words(unmet: Iterable[Any]) -> Iterator[Json]:
    for name in map(text, unmet):
        yield {"name": name, "need": need_of_precondition(name), "remedy": remedy_of_precondition(name)}


def copies_of_job(objects: ReadObjects, namespace: str, name: str) -> Json:
    """Return which ranks hold the same part of the optimizer, a list of ranks for each part that has a copy.

    Raises:
        ClusterError: there is no such job, or this version does not understand it.
        HajobInputError: its sizes do not fit together.
    """
    layout = layout_from_spec(spec_of_job(objects, namespace, name))
    groups: list[list[int]] = []
    sent = 0
    # Every part of the optimizer has a row; a browser needs those that have a partner to be lit.
    for row in layout.report_group_list():
        sent += len(row.holders)
        if sent > _MOST_COPIES:
            return {"groups": [], "tooMany": True}
        if len(row.holders) > 1:
            groups.append(list(row.holders))
    return {"groups": groups, "tooMany": False}


def loss_of_node(
    objects: ReadObjects, namespaces: Sequence[str], job: tuple[str, str], node_rank: int, now_ms: int
) -> Json:
    """Return what would become of a job that loses a node now.

    Args:
        objects: of the cluster.
        namespaces: of the operator, then those of MindCluster's ConfigMaps.
        job: its namespace and name.
        node_rank: of the lost node.
        now_ms: milliseconds since 1970.

    Raises:
        ClusterError: there is no such job, or this version does not understand it.
        HajobInputError: it has no such node rank.
    """
    spec = spec_of_job(objects, *job)
    free, notes = free_nodes_for(objects, spec, namespaces, now_ms)
    answer = simulate_loss(spec, SimulationRequest(nodes=(node_rank,), free_nodes=free))
    told = answer_as_json(answer)
    return {
        "nodeRank": node_rank,
        "action": told["action"],
        "failure": answer.failure,
        "cost": _cost_of_answer(answer),
        "freeNodes": free,
        "dataParallel": told["dataParallel"],
        "spare": answer.places.get(node_rank, ""),
        "stepTime": float(answer.step_time) if answer.step_time is not None else None,
        "fromCopies": sum(one.giver is not None for one in answer.repairs),
        "fromCheckpoint": sum(one.giver is None for one in answer.repairs),
        "usualMilliseconds": _usual_outage(JobView(find_job(objects, *job), now_ms), answer.action),
        "considered": [
            {"action": one.action, "taken": one.taken, "message": one.verdict_message} for one in answer.considered
        ],
        "notes": notes,
    }


def _cost_of_answer(answer: SimulationResult) -> str:
    """Return the action whose cost the loss has: Restart, too, where every rank loads the checkpoint all the same."""
    if answer.action is None:
        return ""
    repaired = answer.action in {Action.IN_PLACE, Action.REPLACE}
    # A replacement finds its state at a copy, unless all copies of a part were lost with it.
    if repaired and any(one.giver is None for one in answer.repairs):
        return Action.RESTART.value
    return answer.action.value


def _usual_outage(job: JobView, action: Action | None) -> int | None:
    """Return how long such an action has taken in this job before, the median; None: it was never needed."""
    done = [one for one in job.incidents if one.get("action") == action and one.get("outcome") == "Recovered"]
    took = sorted(map(outage_milliseconds, done))
    return took[len(took) // 2] if took else None
