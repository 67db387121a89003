"""Quota of the stand-in for Kueue: what queues use, what their cohorts lend, which flavor a pod set gets. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from e2e.kueue.requests import requests_of_pod, thousandths
from e2e.kueue.topology import assign_nodes
from e2e.kueue.world import Configuration, Object, World, queue_of_admission

Use = Counter[tuple[str, str]]
"""Flavor and resource to thousandths."""


@dataclass(frozen=True)
class Limits:
    """Quota of one resource in one flavor of a ClusterQueue, in thousandths.

    Attributes:
        nominal: its own.
        borrowing: most that it may have beyond that; None: what the cohort has.
        lending: most of its own that others may have; None: all.
    """

    nominal: int = 0
    borrowing: int | None = None
    lending: int | None = None

    @property
    def lent(self) -> int:
        """What others may have of it."""
        return self.nominal if self.lending is None else min(self.nominal, self.lending)


@dataclass
class Usage:
    """What every ClusterQueue uses, by its name."""

    queues: dict[str, Use]

    @classmethod
    def of_world(cls, world: World) -> Usage:
        """Return what is reserved now."""
        made = cls({name: Use() for name in world.cluster_queues})
        for workload in world.workloads.values():
            made.add_workload(workload, 1)
        return made

    def copied(self) -> Usage:
        """Return one that may be changed."""
        return Usage({name: Use(used) for name, used in self.queues.items()})

    def add_workload(self, workload: Object, sign: int) -> None:
        """Count a Workload that has quota, or (-1) count it no more."""
        name = queue_of_admission(workload)
        if name in self.queues:
            for key, amount in usage_of_workload(workload).items():
                self.queues[name][key] += sign * amount

    def room_of_queue(self, world: World, queue: Object, flavor: str, resource: str) -> tuple[int, int]:
        """Return what a queue may still have, and the most that it could ever have."""
        own, used = limits_of_queue(queue, flavor, resource), self.queues[queue["metadata"]["name"]][flavor, resource]
        cohort = queue["spec"].get("cohortName")
        if not cohort:
            return own.nominal - used, own.nominal
        free, most = 0, own.nominal - own.lent
        for name, other in world.cluster_queues.items():
            if other["spec"].get("cohortName") == cohort:
                limits = limits_of_queue(other, flavor, resource)
                free += limits.lent - max(self.queues[name][flavor, resource] - (limits.nominal - limits.lent), 0)
                most += limits.lent
        left = max(own.nominal - own.lent - used, 0) + free
        if own.borrowing is None:
            return left, most
        allowed = own.nominal + own.borrowing
        return min(left, allowed - used), min(most, allowed)

    def borrowed_by_queue(self, world: World, name: str, flavor: str, resource: str) -> int:
        """Return how much a queue has beyond its own quota; negative: it has some left."""
        limits = limits_of_queue(world.cluster_queues[name], flavor, resource)
        return self.queues[name][flavor, resource] - limits.nominal


def limits_of_queue(queue: Object, flavor: str, resource: str) -> Limits:
    """Return a queue's quota of a resource in a flavor."""
    for group in queue["spec"].get("resourceGroups") or []:
        for quota in group["flavors"]:
            for one in quota["resources"] if quota["name"] == flavor else ():
                if one["name"] == resource:
                    borrowing, lending = one.get("borrowingLimit"), one.get("lendingLimit")
                    return Limits(
                        thousandths(one["nominalQuota"]),
                        None if borrowing is None else thousandths(borrowing),
                        None if lending is None else thousandths(lending),
                    )
    return Limits()


def usage_of_workload(workload: Object) -> Use:
    """Return what an admitted Workload uses: a lowered count and reclaimed pods are given back at once."""
    status = workload.get("status") or {}
    given = (status.get("admission") or {}).get("podSetAssignments") or []
    less = {one["name"]: one["count"] for one in status.get("reclaimablePods") or []}
    counts = {one["name"]: one["count"] for one in workload["spec"]["podSets"]}
    used = Use()
    for one in given:
        left = max(min(one["count"], counts.get(one["name"], 0)) - less.get(one["name"], 0), 0)
        for resource, flavor in (one.get("flavors") or {}).items():
            amount = thousandths(one["resourceUsage"][resource]) // max(one["count"], 1)
            used[flavor, resource] += amount * left
    return used


@dataclass(frozen=True)
class Assignment:
    """What a Workload would be given.

    Attributes:
        pod_sets: as `podSetAssignments` has them; None: it does not fit.
        why: it does not fit.
    """

    pod_sets: list[Object] | None = None
    why: str = ""


@dataclass(frozen=True)
class Assigner:
    """Finds flavors for the pod sets of one Workload in one queue."""

    world: World
    configuration: Configuration
    queue: Object

    def assign_workload(self, workload: Object, usage: Usage) -> Assignment:
        """Return a flavor for each resource of each pod set, or why there is none."""
        taken, made = usage.copied(), list[Object]()
        less = {one["name"]: one["count"] for one in (workload.get("status") or {}).get("reclaimablePods") or []}
        for pod_set in workload["spec"]["podSets"]:
            # What was reclaimed before an eviction is still left out: the next admission is that much smaller.
            count = max(pod_set["count"] - less.get(pod_set["name"], 0), 0)
            given = self._assign_pod_set(workload, pod_set, count, taken)
            if isinstance(given, str):
                return Assignment(why=f"couldn't assign flavors to pod set {pod_set['name']}: {given}")
            made.append(given)
        # Where Kueue chooses nodes for one pod set, it does so for all, by the flavor that each of them has.
        bare = next((one["name"] for one in made if not one.get("flavors")), "")
        if bare and any("topologyAssignment" in one for one in made):
            return Assignment(why=f"failed to assign flavors to pod set {bare}: no TAS flavor assigned")
        return Assignment(made)

    def assign_fewer(self, workload: Object, usage: Usage) -> Assignment:
        """Partial admission: the pod set with minCount gets what there is."""
        flexible = next((one for one in workload["spec"]["podSets"] if "minCount" in one), None)
        found = Assignment()
        if flexible is None:
            return found
        for count in range(flexible["count"] - 1, flexible["minCount"] - 1, -1):
            pod_sets = [{**one, "count": count} if one is flexible else one for one in workload["spec"]["podSets"]]
            found = self.assign_workload({**workload, "spec": {**workload["spec"], "podSets": pod_sets}}, usage)
            if found.pod_sets is not None:
                return found
        return found

    def stays_within_own(self, workload: Object, pod_sets: list[Object], usage: Usage) -> bool:
        """Return whether a queue needs nothing of its cohort for these pod sets."""
        name = self.queue["metadata"]["name"]
        admission = {"clusterQueue": name, "podSetAssignments": pod_sets}
        asked = usage_of_workload({**workload, "status": {"admission": admission}})
        return all(usage.borrowed_by_queue(self.world, name, *key) + amount <= 0 for key, amount in asked.items())

    def _assign_pod_set(self, workload: Object, pod_set: Object, count: int, taken: Usage) -> Object | str:
        """Return what a pod set is given, and count it as taken; why not, as text."""
        one_pod = requests_of_pod(pod_set["template"]["spec"])
        excluded = self.configuration.excluded_prefixes
        asked = {name: amount * count for name, amount in one_pod.items() if not name.startswith(excluded)}
        given: Object = {"name": pod_set["name"], "count": count}
        for group in _groups_of_queue(self.queue, asked):
            if isinstance(group, str):
                return f"resource {group} unavailable in ClusterQueue"
            names, flavors = group
            flavor, why = self._first_flavor(pod_set, flavors, {name: asked[name] for name in names}, taken)
            if not flavor:
                return why
            for name in names:
                given.setdefault("flavors", {})[name] = flavor
                given.setdefault("resourceUsage", {})[name] = f"{asked[name]}m"
                taken.queues[self.queue["metadata"]["name"]][flavor, name] += asked[name]
            if topology := (self.world.flavors[flavor].get("spec") or {}).get("topologyName"):
                if topology not in self.world.topologies:
                    return f"topology {topology} not found"
                nodes = assign_nodes(self.world, workload, flavor, count, {n: one_pod[n] for n in names})
                if isinstance(nodes, int):
                    return f'topology "{topology}" allows to fit only {nodes} out of {count} pod(s)'
                given["topologyAssignment"] = nodes
        return given

    def _first_flavor(
        self, pod_set: Object, flavors: Sequence[Object], asked: Mapping[str, int], taken: Usage
    ) -> tuple[str, str]:
        reasons = []
        for quota in flavors:
            name = quota["name"]
            flavor = self.world.flavors.get(name)
            if flavor is None:
                reasons.append(f"flavor {name} not found")
                continue
            why = _why_unfit(pod_set["template"]["spec"], flavor.get("spec") or {}, name)
            for resource, amount in asked.items():
                why = why or self._why_short(name, resource, amount, taken)
            if not why:
                return name, ""
            reasons.append(why)
        return "", ", ".join(reasons)

    def _why_short(self, flavor: str, resource: str, amount: int, taken: Usage) -> str:
        left, most = taken.room_of_queue(self.world, self.queue, flavor, resource)
        if amount > most:
            return (
                f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests (0) + "
                f"current podset request ({amount // 1000}) > maximum capacity ({most // 1000})"
            )
        if amount > left:
            return f"insufficient unused quota for {resource} in flavor {flavor}, {(amount - left) // 1000} more needed"
        return ""


def _groups_of_queue(queue: Object, asked: Mapping[str, int]) -> Iterator[tuple[list[str], list[Object]] | str]:
    groups = queue["spec"].get("resourceGroups") or []
    covered = {name for group in groups for name in group["coveredResources"]}
    for name in asked:
        if name not in covered:
            yield name
    for group in groups:
        names = [name for name in asked if name in group["coveredResources"]]
        if names:
            yield names, group["flavors"]


def _why_unfit(pod: Mapping[str, Any], flavor: Mapping[str, Any], name: str) -> str:
    """Only the keys of the flavor's own node labels count of a selector and of a required affinity."""
    labels, selector = flavor.get("nodeLabels") or {}, pod.get("nodeSelector") or {}
    if any(key in labels and labels[key] != value for key, value in selector.items()):
        return f"flavor {name} doesn't match node affinity"
    required = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    terms = required.get("nodeSelectorTerms") or []
    if terms and not any(_is_term_met(term, labels) for term in terms):
        return f"flavor {name} doesn't match node affinity"
    tolerations = [*(pod.get("tolerations") or []), *(flavor.get("tolerations") or [])]
    for taint in flavor.get("nodeTaints") or []:
        if taint.get("effect") != "PreferNoSchedule" and not any(_bears_taint(one, taint) for one in tolerations):
            told = f"{taint['key']} {taint.get('value', '')} {taint.get('effect', '')} <nil>"
            return f"untolerated taint {{{told}}} in flavor {name}"
    return ""


def _is_term_met(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    for one in term.get("matchExpressions") or []:
        if one["key"] in labels:
            is_named = labels[one["key"]] in (one.get("values") or [])
            met = {"In": is_named, "NotIn": not is_named, "Exists": True, "DoesNotExist": False}
            if not met.get(one["operator"], True):
                return False
    return True


def _bears_taint(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in {None, "", taint.get("effect")}:
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in {None, "", taint["key"]}
    return toleration.get("key") == taint["key"] and (toleration.get("value") or "") == (taint.get("value") or "")
