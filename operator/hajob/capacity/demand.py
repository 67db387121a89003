"""The requirements of a rank pod on its node, and whether a node meets them, as the scheduler would see it.

Considered are the chips, host ports, node selector, required node affinity, tolerations and excluded nodes. Not
considered are processor and memory requests, affinity between pods other than Hajob's own, topology spread and volumes
bound to a place: for a job that depends on those, too many nodes may count as free.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from hajob.api.derived import rank_host_ports
from hajob.api.enums import GangPolicy
from hajob.api.spec import HATrainingJobSpec
from hajob.domain.layout import Layout
from hajob.sources.host_ports import HostPort, HostPorts, host_ports_of_spec
from hajob.sources.node import UNSCHEDULABLE, NodeView, Taint
from hajob.sources.reading import items, text

_KEEPS_OFF: Final = frozenset({"NoSchedule", "NoExecute"})
_CORDON: Final = Taint(UNSCHEDULABLE, "NoSchedule")
"""What Kubernetes makes of a cordon."""
_NAME_FIELD: Final = "metadata.name"
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")

Terms = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Demand:
    """Requirements of one rank pod on its node.

    Attributes:
        resource: name of the chips.
        chips: how many.
        rules: node selector, terms of the node affinity, tolerations and excluded names as JSON, to compare demands by.
        ports: of the node, that it takes.
        by_volcano: Volcano places the pod.
    """

    resource: str
    chips: int
    rules: bytes
    ports: HostPorts = ()
    by_volcano: bool = False

    @classmethod
    def from_spec(cls, spec: HATrainingJobSpec, layout: Layout) -> Demand:
        """Return the demand of each rank pod of a job."""
        pod: Mapping[str, Any] = spec.template["spec"]
        affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        rules = {
            "selector": pod.get("nodeSelector") or {},
            "terms": required.get("nodeSelectorTerms"),
            "tolerations": pod.get("tolerations") or [],
            "excluded": sorted(spec.scheduling.excluded_node_names),
        }
        # Bytes with sorted keys: demands are keys of a cache, and equal rules must be equal however they were written.
        written = orjson.dumps(rules, option=orjson.OPT_SORT_KEYS)
        ports = (*host_ports_of_spec(pod), *map(HostPort, rank_host_ports(spec).values()))
        by_volcano = spec.scheduling.gang_policy is GangPolicy.VOLCANO
        return cls(spec.accelerator.resource_name, layout.chips_per_node, written, ports, by_volcano)

    @property
    def tolerations(self) -> list[Mapping[str, str]]:
        """Taints that such a pod bears."""
        found: list[Mapping[str, str]] = orjson.loads(self.rules)["tolerations"]
        return found

    def node_filter(self) -> Callable[[NodeView], bool]:
        """Return a test of whether such a pod may run on a node, its chips apart: usable, allowed, taints tolerated."""
        rules = orjson.loads(self.rules)
        selector: Mapping[str, str] = rules["selector"]
        terms: Terms | None = rules["terms"]
        tolerations: list[Mapping[str, str]] = rules["tolerations"]
        excluded = frozenset(rules["excluded"])

        def may_take(node: NodeView) -> bool:
            if not node.is_usable or node.is_to_be_emptied or node.name in excluded:
                return False
            if any(node.labels.get(label) != value for label, value in selector.items()):
                return False
            if terms is not None and not any(_matches_term(term, node) for term in terms):
                return False
            return not is_kept_off(node, tolerations)

        return may_take


def is_kept_off(node: NodeView, tolerations: Collection[Mapping[str, str]]) -> bool:
    """Return whether the scheduler keeps pods with these tolerations off a node, by its taints or a cordon."""
    # The taint follows a cordon a moment later; the scheduler heeds the field itself as well.
    taints = (*node.taints, _CORDON) if node.unschedulable else node.taints
    keep_off = (taint for taint in taints if taint.effect in _KEEPS_OFF)
    return not all(any(taint.is_tolerated(one) for one in tolerations) for taint in keep_off)


def _matches_term(term: Mapping[str, Any], node: NodeView) -> bool:
    """Whether a node matches one term of a node affinity; an empty term matches none."""
    labels, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    # Kubernetes says so of an empty term; `all` of nothing would match every node.
    if not labels and not fields:
        return False
    own = {_NAME_FIELD: node.name}
    return all(_holds_requirement(one, node.labels) for one in labels) and all(
        _holds_requirement(one, own) for one in fields
    )


def _holds_requirement(requirement: Mapping[str, Any], known: Mapping[str, str]) -> bool:
    """Whether a requirement holds; one that the API server would refuse, as nothing has checked it yet, does not."""
    value, wanted = known.get(text(requirement.get("key"))), list(items(requirement.get("values")))
    match requirement.get("operator"):
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator if len(wanted) == 1:
            own, other = _parse_integer(value), _parse_integer(wanted[0])
            return own is not None and other is not None and (own > other if operator == "Gt" else own < other)
    return False


def _parse_integer(written: object) -> int | None:
    return int(written) if isinstance(written, str) and _INTEGER.fullmatch(written) else None
