"""Workloads of Kueue: what one says of its job, and what the flavors that it was given ask of pods.

Kueue grants quota to a Workload; whoever made it may have pods while it is admitted. It takes quota back by a
condition, and waits for as long as the owner needs to end its pods (docs/admin/schedulers.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from hajob.api import constants as names
from hajob.sources.reading import is_integer, items, mapping, text, uid_of_controlling_job

QUOTA_RESERVED: Final = "QuotaReserved"
ADMITTED: Final = "Admitted"
EVICTED: Final = "Evicted"
REQUEUED: Final = "Requeued"
PODS_READY: Final = "PodsReady"
FINISHED: Final = "Finished"
DEACTIVATION: Final = "DeactivationTarget"
DEACTIVATED: Final = "Deactivated"
"""What the reasons of a deactivation begin with; Kueue's own go on with `DueTo…`."""


class QueueTurn(StrEnum):
    """Whether a job may have pods, as far as its queue is concerned."""

    NO_QUEUE = "NoQueue"
    """No queue is asked for."""
    UNKNOWN = "Unknown"
    """Nobody has said yet, or any more: nothing is started, and what trains goes on."""
    WAITING = "Waiting"
    """Its quota is not reserved."""
    ADMITTED = "Admitted"
    """It may have pods."""
    EVICTED = "Evicted"
    """Its quota is asked back."""

    @property
    def lets_start(self) -> bool:
        """Whether pods may be made for a start."""
        return self in {QueueTurn.NO_QUEUE, QueueTurn.ADMITTED}

    @property
    def asks_to_stop(self) -> bool:
        """Whether a job that runs has to end its pods."""
        return self in {QueueTurn.WAITING, QueueTurn.EVICTED}


@dataclass(frozen=True, slots=True)
class QueueCondition:
    """One condition of a Workload."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: str = ""
    generation: int = 0


@dataclass(frozen=True, slots=True)
class PodSetGrant:
    """What one pod set of a Workload was given.

    Attributes:
        name: of the pod set.
        count: pods that were granted, which may be fewer than were asked for.
        flavors: names of the ResourceFlavors, each once.
        labels, annotations, node_selector: what admission checks add to the pods.
        tolerations: the same.
    """

    name: str
    count: int
    flavors: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """The part of a Workload that the operator keeps.

    Attributes:
        version: its resourceVersion, for the one write of its status that must not undo another's.
        job_uid: of the job that controls it, by its owner reference; empty for none.
        queue: name of its LocalQueue.
        digest: of what its writer asked for.
        suspended: Hajob has deactivated it because its job is suspended.
        active: it may be admitted.
        priority: as Kueue counts it.
        priority_class: name of its WorkloadPriorityClass; empty for none.
        grants: what its pod sets were given; empty while nothing is reserved.
        checks: admission checks that are not ready, each with its state and words.
    """

    namespace: str
    name: str
    uid: str
    version: str = ""
    generation: int = 0
    job_uid: str = ""
    queue: str = ""
    digest: str = ""
    suspended: bool = False
    active: bool = True
    priority: int = 0
    priority_class: str = ""
    conditions: tuple[QueueCondition, ...] = ()
    grants: tuple[PodSetGrant, ...] = ()
    checks: tuple[str, ...] = ()

    def find_condition(self, kind: str) -> QueueCondition | None:
        """Return the condition of this type; None where there is none."""
        return next((one for one in self.conditions if one.type == kind), None)

    def has_true_condition(self, kind: str) -> bool:
        """Return whether a condition is True."""
        found = self.find_condition(kind)
        return found is not None and found.status == "True"

    def grant_of_pod_set(self, pod_set: str) -> PodSetGrant | None:
        """Return what a pod set was given; None for nothing."""
        return next((one for one in self.grants if one.name == pod_set), None)

    @property
    def has_quota(self) -> bool:
        """Whether Kueue counts it: its quota is reserved, or it is taken for admitted."""
        return self.has_true_condition(QUOTA_RESERVED) or self.has_true_condition(ADMITTED)

    @property
    def owes_quota(self) -> bool:
        """Whether its quota is asked back and was not given back yet."""
        return self.has_true_condition(EVICTED) and self.has_quota and not self.has_true_condition(FINISHED)

    @property
    def queue_turn(self) -> QueueTurn:
        """Return whether its pods may be there.

        A Workload without conditions was made a moment ago, or while Kueue is away: nobody has said anything of it.
        """
        if self.has_true_condition(FINISHED):
            return QueueTurn.UNKNOWN
        # Admitted stays True for as long as the owner takes to give the quota back, so the eviction is asked first.
        if self.has_true_condition(EVICTED):
            return QueueTurn.EVICTED
        if self.has_true_condition(ADMITTED):
            return QueueTurn.ADMITTED
        reserved = self.find_condition(QUOTA_RESERVED)
        return QueueTurn.WAITING if reserved is not None and reserved.status == "False" else QueueTurn.UNKNOWN


@dataclass(frozen=True, slots=True)
class Flavor:
    """A ResourceFlavor: what pods that use it need."""

    name: str
    node_labels: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Placing:
    """What a queue adds to the pods of one pod set; a template's own values for the same keys are overwritten.

    Attributes:
        node_selector: labels that their nodes have.
        tolerations: taints that they bear.
        labels: of the pods.
        annotations: of the pods.
    """

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_grant(cls, grant: PodSetGrant, flavors: Iterable[Flavor]) -> Placing:
        """Merge what these flavors and the admission checks of a pod set say; the checks have the last word."""
        known = tuple(flavors)
        labels = {key: value for flavor in known for key, value in flavor.node_labels}
        return cls(
            node_selector=labels | dict(grant.node_selector),
            tolerations=(*(one for flavor in known for one in flavor.tolerations), *grant.tolerations),
            labels=dict(grant.labels),
            annotations=dict(grant.annotations),
        )


NO_PLACING: Final = Placing()


@dataclass(frozen=True, slots=True)
class QueuePriority:
    """A WorkloadPriorityClass, or, without a name, a plain priority."""

    name: str
    value: int


def workload_view_of(raw: Mapping[str, Any]) -> WorkloadView:
    """Build the view of a raw Workload."""
    metadata, spec, status = mapping(raw.get("metadata")), mapping(raw.get("spec")), mapping(raw.get("status"))
    notes, reference = mapping(metadata.get("annotations")), mapping(spec.get("priorityClassRef"))
    return WorkloadView(
        namespace=text(metadata.get("namespace")),
        name=text(metadata.get("name")),
        uid=text(metadata.get("uid")),
        version=text(metadata.get("resourceVersion")),
        generation=_whole_number_of(metadata.get("generation")),
        job_uid=uid_of_controlling_job(metadata),
        queue=text(spec.get("queueName")),
        digest=text(notes.get(names.ANNOTATION_DIGEST)),
        suspended=notes.get(names.ANNOTATION_SUSPENDED) == "true",
        active=spec.get("active") is not False,
        priority=_whole_number_of(spec.get("priority")),
        priority_class=text(reference.get("name")),
        conditions=tuple(_queue_condition_of(mapping(one)) for one in items(status.get("conditions"))),
        grants=tuple(_grants_of_status(status)),
        checks=tuple(_open_checks(status)),
    )


def flavor_view_of(raw: Mapping[str, Any]) -> Flavor:
    """Build the view of a raw ResourceFlavor."""
    metadata, spec = mapping(raw.get("metadata")), mapping(raw.get("spec"))
    tolerations = tuple(mapping(one) for one in items(spec.get("tolerations")))
    return Flavor(text(metadata.get("name")), _sorted_pairs(spec.get("nodeLabels")), tolerations)


def priority_class_view_of(raw: Mapping[str, Any]) -> QueuePriority:
    """Build the view of a raw WorkloadPriorityClass."""
    return QueuePriority(text(mapping(raw.get("metadata")).get("name")), _whole_number_of(raw.get("value")))


def _queue_condition_of(raw: Mapping[str, Any]) -> QueueCondition:
    return QueueCondition(
        type=text(raw.get("type")),
        status=text(raw.get("status")),
        reason=text(raw.get("reason")),
        message=text(raw.get("message")),
        since=text(raw.get("lastTransitionTime")),
        generation=_whole_number_of(raw.get("observedGeneration")),
    )


def _grants_of_status(status: Mapping[str, Any]) -> Iterator[PodSetGrant]:
    updates = [
        mapping(one)
        for check in map(mapping, items(status.get("admissionChecks")))
        for one in items(check.get("podSetUpdates"))
    ]
    for given in map(mapping, items(mapping(status.get("admission")).get("podSetAssignments"))):
        name = text(given.get("name"))
        # Two groups of resources give two flavors to one pod set; one of which nothing is covered has none.
        more = [one for one in updates if one.get("name") == name]
        yield PodSetGrant(
            name,
            _whole_number_of(given.get("count")),
            flavors=tuple(dict.fromkeys(map(str, mapping(given.get("flavors")).values()))),
            labels=_merged_pairs(more, "labels"),
            annotations=_merged_pairs(more, "annotations"),
            node_selector=_merged_pairs(more, "nodeSelector"),
            tolerations=tuple(mapping(each) for one in more for each in items(one.get("tolerations"))),
        )


def _open_checks(status: Mapping[str, Any]) -> Iterator[str]:
    for check in map(mapping, items(status.get("admissionChecks"))):
        if check.get("state") != "Ready":
            told = text(check.get("message"))
            yield f"{text(check.get('name'))} ({text(check.get('state'))}{f': {told}' if told else ''})"


def _merged_pairs(updates: Sequence[Mapping[str, Any]], part: str) -> tuple[tuple[str, str], ...]:
    return _sorted_pairs({key: value for one in updates for key, value in mapping(one.get(part)).items()})


def _sorted_pairs(raw: object) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((str(key), str(value)) for key, value in mapping(raw).items()))


def _whole_number_of(raw: object) -> int:
    """Return a number, a priority below zero among them; 0 for anything else."""
    return raw if is_integer(raw) else 0
