"""The placement rules of a job's pods.

Losing a node should cost one rank pod or the coordinator, never both, and never two rank pods; so they keep apart by
required anti-affinity. It is matched by the job's UID, because pods of a deleted job of the same name may hang on a
dead node. Where nothing else fits, a coordinator can be built to go anywhere: it then wears another placement label,
which the rank pods' side of the rule does not match.
"""

import copy
from collections.abc import Collection
from typing import Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.derived import nodes_per_block
from hajob.api.job import HATrainingJob

_COORDINATOR_WEIGHT: Final = 100  # the highest that the API knows

# Hajob decides what a silent node means, not the taint manager after its five minutes.
NODE_LOSS_TOLERATIONS: Final[tuple[Json, ...]] = tuple(
    {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute"}
    for taint in ("not-ready", "unreachable")
)


def _pods_of_job_term(job: HATrainingJob, topology: str, **labels: str) -> Json:
    """An affinity term: the job's pods with these labels, by the value of a label of their nodes."""
    selector = {names.LABEL_JOB_UID: job.metadata.uid, **labels}
    return {"labelSelector": {"matchLabels": selector}, "topologyKey": topology}


def _exclusion_terms(excluded: Collection[str]) -> list[Json]:
    return [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in sorted(excluded)]


def _without_nodes(affinity: Json, excluded: Collection[str]) -> None:
    """Exclude nodes in every alternative of the node affinity; alternatives are or-ed, fields in one are and-ed."""
    if excluded:
        _require_fields(affinity, _exclusion_terms(excluded))


def _require_fields(affinity: Json, fields: list[Json], *, part: str = "matchFields") -> None:
    node_affinity = affinity.setdefault("nodeAffinity", {})
    required = node_affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    required["nodeSelectorTerms"] = required.get("nodeSelectorTerms") or [{}]
    for term in required["nodeSelectorTerms"]:
        term.setdefault(part, []).extend(fields)


def _require_apart(affinity: Json, *terms: Json) -> None:
    apart = affinity.setdefault("podAntiAffinity", {})
    apart.setdefault("requiredDuringSchedulingIgnoredDuringExecution", []).extend(terms)


def rank_affinity(
    job: HATrainingJob,
    template_affinity: Json,
    excluded: Collection[str],
    place: str = "",
    *,
    topology: str = names.LABEL_HOSTNAME,
    super_pod: str = "",
) -> Json:
    """Build the affinity of a rank pod: the user's own, off excluded nodes, alone on its node, off the coordinator's.

    Args:
        job: the job.
        template_affinity: `affinity` of the user's template, or empty; it is not changed.
        excluded: node names that are out of question, such as nodes that were just lost.
        place: the only node where it may go; empty: any other.
        topology: label of nodes: those with one value take one pod of a job.
        super_pod: the only one in which it may go; empty: any.
    """
    affinity = copy.deepcopy(template_affinity)
    _without_nodes(affinity, {*excluded, *job.spec.scheduling.excluded_node_names})
    if place:
        _require_fields(affinity, [{"key": "metadata.name", "operator": "In", "values": [place]}])
    if super_pod:
        label = {"key": names.LABEL_NODE_SUPER_POD, "operator": "In", "values": [super_pod]}
        _require_fields(affinity, [label], part="matchExpressions")
    coordinator = {names.LABEL_ROLE: names.ROLE_COORDINATOR, names.LABEL_PLACEMENT: names.PLACEMENT_APART}
    ranks = {names.LABEL_ROLE: names.ROLE_RANK}
    _require_apart(affinity, _pods_of_job_term(job, topology, **ranks), _pods_of_job_term(job, topology, **coordinator))
    return affinity


def spare_affinity(job: HATrainingJob, template_affinity: Json, excluded: Collection[str], *, topology: str) -> Json:
    """Build the affinity of a spare's pod: where a rank pod may go, and no other spare is."""
    affinity = rank_affinity(job, template_affinity, excluded, topology=topology)
    spares = {names.LABEL_ROLE: names.ROLE_SPARE}
    _require_apart(affinity, _pods_of_job_term(job, topology, **spares))
    if nodes_per_block(job.spec):  # a spare serves the blocks of its super pod only
        elsewhere = _pods_of_job_term(job, names.LABEL_NODE_SUPER_POD, **spares)
        rather = affinity["podAntiAffinity"].setdefault("preferredDuringSchedulingIgnoredDuringExecution", [])
        rather.append({"weight": _COORDINATOR_WEIGHT, "podAffinityTerm": elsewhere})
    return affinity


def coordinator_affinity(
    job: HATrainingJob,
    avoided: Collection[str],
    silent: Collection[str],
    *,
    apart: bool,
    topology: str = names.LABEL_HOSTNAME,
) -> Json:
    """Build the affinity of the coordinator pod.

    It prefers nodes without chips, and nodes that are not `avoided`. While it is to be `apart`, it takes neither a node
    with ranks of the job nor a `silent` one. A pod that is not `apart` was made because there is no other node: it
    takes even those, and only prefers others.
    """
    avoided = avoided if apart else {*avoided, *silent}
    rather: list[Json] = [{"matchExpressions": [{"key": names.LABEL_NODE_ACCELERATOR, "operator": "DoesNotExist"}]}]
    if avoided:
        rather.append({"matchFields": _exclusion_terms(avoided)})
    preferred = [{"weight": _COORDINATOR_WEIGHT, "preference": one} for one in rather]
    affinity: Json = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    _without_nodes(affinity, {*job.spec.scheduling.excluded_node_names, *(silent if apart else ())})
    ranks = _pods_of_job_term(job, topology, **{names.LABEL_ROLE: names.ROLE_RANK})
    if apart:
        _require_apart(affinity, ranks)
    else:
        affinity["podAntiAffinity"] = {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": _COORDINATOR_WEIGHT, "podAffinityTerm": ranks}
            ]
        }
    return affinity


def with_node_loss_tolerations(tolerations: list[Json]) -> list[Json]:
    """Return the tolerations with Hajob's own for silent nodes, which have no time limit and replace the user's."""
    ours = {taint["key"] for taint in NODE_LOSS_TOLERATIONS}
    kept = [entry for entry in tolerations if entry.get("key") not in ours]
    return [*copy.deepcopy(kept), *copy.deepcopy(list(NODE_LOSS_TOLERATIONS))]
