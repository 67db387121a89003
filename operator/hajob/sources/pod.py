"""What the operator keeps of a pod, and what a pod says about faults.

A pod object is 10 kB and thousands of them are cached, so only the few fields that a decision needs are taken over.
A pod is the *slow* observer: its agent has usually reported a fault seconds before the kubelet writes it here. So the
facts made from pods have ids of their own and count as nothing new when their ranks are lost already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from sys import intern
from typing import Any, Final

from hajob.api import constants as names
from hajob.api.enums import SpareMode
from hajob.domain.facts import (
    DELETED,
    EVICTIONS,
    TAKEN_PODS,
    Fact,
    FactKind,
    Origin,
    Source,
    is_refusal_code,
    origin_of_exit,
)
from hajob.sources.device_plugin import volcano_mode_of_plugin
from hajob.sources.host_ports import HostPorts, host_ports_of_spec
from hajob.sources.quota import Use, use_of_pod
from hajob.sources.reading import (
    Reading,
    Terms,
    extended_amounts,
    is_integer,
    items,
    mapping,
    milliseconds_of,
    parse_whole_number,
    text,
    uid_of_controlling_job,
)

UNSTARTABLE: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
"""Reasons of a waiting container that do not pass by themselves."""

_STARTED_AGAIN: Final = "CrashLoopBackOff"
"""Why a container waits that has ended and will be started once more."""

ENDED_PHASES: Final = frozenset({"Failed", "Succeeded"})

_NEVER: Final = "Never"
"""The preemptionPolicy of a pod that waits for nodes, whatever its priority."""

_WITHOUT_A_NODE: Final = frozenset({"Unschedulable", "Schedulable"})
"""Reasons of a pod without a node. Schedulable says Volcano of one that would fit, were there room for its group."""
_GANG: Final = re.compile(r"tasks in gang unschedulable: pod group is not ready, ([^;]*)")
_COUNT: Final = re.compile(r"(\d+) (\w+)")

_NO_NODES: Final[frozenset[str]] = frozenset()
"""One for all: each empty set of its own takes 216 bytes."""

MAIN_CONTAINERS: Final = frozenset({"trainer", "controller", names.HOOK_CONTAINER})
"""The container whose end is the end of the pod's work; users may add others."""

SCRIPT_EXITS: Final = frozenset({64, 65})
"""Exit codes by which the launcher says that the script is over without a training (docs/protocols/launcher.md)."""

_CONFIGURATION: Final = re.compile(r"ascend\.kubectl\.kubernetes\.io/ascend-[a-z0-9]{1,32}-configuration")
"""The annotation with a pod's devices; the middle is the kind of chip: `910`, `npu`."""
_REAL: Final = names.ANNOTATION_REAL_CHIPS
"""What was mounted, as the device plugin notes it under one name for every kind of chip."""
_MOST_CHIPS: Final = 64
"""No node has more; an annotation may say anything."""
_LONGEST_DEVICES: Final = 16_384
"""Sixteen chips take two kilobytes."""

_ENDS: Final = frozenset({FactKind.POD_FAILED, FactKind.SCRIPT_ENDED})
"""Kinds that say that a pod has ended; why, a rank's last lines may tell."""

Requests = tuple[tuple[str, int], ...]
"""Names of extended resources, each with an amount."""


@dataclass(frozen=True, slots=True)
class PodView:
    """The part of a pod that the operator keeps.

    Attributes:
        job_uid: of the job that controls it, by its owner reference; a label is not believed. Empty for none.
        role: rank or coordinator (label).
        port: of a coordinator, where the operator dials it.
        node_rank: -1 for a coordinator.
        trouble: why a container cannot start or has ended badly: "container: Reason: message", or empty.
        trouble_code: the reason alone.
        exit_code: of the main container, None while it has not ended.
        left_over: it was deleted without grace, and only somebody's finalizer keeps the object: no kubelet ends it.
        disruption: why the cluster takes it, by its condition DisruptionTarget; empty while it does not.
        disruption_text: the same as a sentence of whoever takes it.
        last_word: what the main container left as it ended with 0: the training finished, its script did not.
        chips: numbers of its chips on the node, in the order of its ranks; empty while nobody has told.
        started_ms: when its node took it (`status.startTime`); None before.
        requests: what it asks for of resources like chips, by name and amount.
        excluded: names of the nodes where it may not be placed; empty once it has a node.
        place: name of the only node where it may be placed; empty for any, and once it has a node.
        nominated: name of the node that the scheduler keeps for it.
        warm: it was made as a spare that becomes a rank pod as it is.
        gate: position of Hajob's own scheduling gate, as webhooks may have put others before it; -1: it has none.
        priority: as its priority class says.
        preempts: its priority class lets it take the nodes of pods of a lower priority.
        use: of a rank pod, what it uses of quotas.
        ports: of its node, that it takes.
        group: name of the PodGroup of Volcano that it says it belongs to; empty for none.
        super_pod: where its block is, as Volcano or Hajob has noted; empty for none.
        devices: of a pod with a rank table, what is noted of its chips, unread (hajob.sources.rank_table).
        key: namespace and name; made once, for it is asked for at each step of an event.
    """

    namespace: str
    name: str
    uid: str
    job_uid: str
    role: str
    node_rank: int
    incarnation: int
    phase: str = "Pending"
    address: str = ""
    port: int = names.COORDINATOR_PORT
    node_name: str = ""
    ready: bool = False
    deleting: bool = False
    left_over: bool = False
    unschedulable: str = ""
    trouble: str = ""
    trouble_code: str = ""
    exit_code: int | None = None
    disruption: str = ""
    disruption_text: str = ""
    last_word: str = ""
    chips: tuple[str, ...] = ()
    started_ms: int | None = None
    requests: Requests = ()
    excluded: frozenset[str] = _NO_NODES
    gate: int = -1
    warm: bool = False
    place: str = ""
    nominated: str = ""
    priority: int = 0
    preempts: bool = True
    use: Use = ()
    ports: HostPorts = ()
    group: str = ""
    super_pod: str = ""
    devices: str = ""
    key: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.namespace}/{self.name}")

    @property
    def has_untold_chips(self) -> bool:
        """Whether it asks for chips, and nobody has noted which it has."""
        return bool(self.requests) and not self.chips

    @property
    def is_gated(self) -> bool:
        """Whether it stands behind Hajob's own scheduling gate."""
        return self.gate >= 0

    @property
    def is_rank_pod(self) -> bool:
        """Whether it is a rank pod."""
        return self.role == names.ROLE_RANK

    @property
    def is_spare_pod(self) -> bool:
        """Whether it holds a spare node."""
        return self.role == names.ROLE_SPARE

    @property
    def is_hook_pod(self) -> bool:
        """Whether it does the work of a planned pause."""
        return self.role == names.ROLE_HOOK

    @property
    def has_ended(self) -> bool:
        """Whether its main container will not run again."""
        return self.phase in ENDED_PHASES

    @property
    def failed_by_itself(self) -> bool:
        """Whether its main container could not be started, or failed without the machine's help."""
        ended_badly = self.phase == "Failed" and self.exit_code is not None
        return ended_badly and origin_of_exit(self.exit_code or 0) is Origin.PROGRAM

    @property
    def is_refused_by_node(self) -> bool:
        """Whether its node did not take it."""
        return self.phase == "Failed" and self.exit_code is None and is_refusal_code(self.trouble_code)

    @property
    def has_finished(self) -> bool:
        """Whether its trainer has ended with 0; what is beside it may need a moment longer, or has failed."""
        return self.phase == "Succeeded" or self.exit_code == 0


def pod_view_of(pod: Mapping[str, Any]) -> PodView:
    """Build the view of a raw pod of ours; missing fields read as a pod that has just been made."""
    metadata, spec, status = mapping(pod.get("metadata")), mapping(pod.get("spec")), mapping(pod.get("status"))
    labels = mapping(metadata.get("labels"))
    code, trouble, exit_code = _trouble_of_containers(status)
    requests = _extended_requests(spec)
    gates = [text(mapping(gate).get("name")) for gate in items(spec.get("schedulingGates"))]
    disruption, disruption_text = _disruption_reason(status)
    annotations = mapping(metadata.get("annotations"))
    return PodView(
        namespace=intern(text(metadata.get("namespace"))),
        name=text(metadata.get("name")),
        uid=text(metadata.get("uid")),
        job_uid=intern(uid_of_controlling_job(metadata)),
        role=intern(text(labels.get(names.LABEL_ROLE))),
        node_rank=_number_or_default(labels.get(names.LABEL_NODE_RANK), -1),
        incarnation=_number_or_default(labels.get(names.LABEL_INCARNATION), 0),
        phase=intern(text(status.get("phase")) or "Pending"),
        address=text(status.get("podIP")),
        port=_port_of_coordinator(spec),
        node_name=intern(text(spec.get("nodeName"))),
        ready=_condition_of_kind(status, "Ready").get("status") == "True",
        deleting="deletionTimestamp" in metadata,
        left_over=_is_left_over(metadata),
        unschedulable=_unschedulable(gates, status),
        trouble=trouble,
        trouble_code=code,
        exit_code=exit_code,
        disruption=disruption,
        disruption_text=disruption_text,
        last_word=_termination_message(status),
        chips=chip_numbers(annotations, (name for name, _ in requests)),
        started_ms=milliseconds_of(status["startTime"]) if status.get("startTime") else None,
        requests=requests,
        excluded=frozenset(_nodes_named_in_affinity(spec, "NotIn")) or _NO_NODES
        if not spec.get("nodeName")
        else _NO_NODES,
        place=next(_nodes_named_in_affinity(spec, "In"), "") if not spec.get("nodeName") else "",
        warm=labels.get(names.LABEL_SPARE_MODE) == SpareMode.WARM,
        nominated=intern(text(status.get("nominatedNodeName"))),
        gate=gates.index(names.GATE) if names.GATE in gates else -1,
        priority=_pod_priority(spec),
        preempts=spec.get("preemptionPolicy") != _NEVER,
        use=use_of_pod(spec) if labels.get(names.LABEL_ROLE) == names.ROLE_RANK else (),
        ports=host_ports_of_spec(spec),
        group=intern(text(annotations.get(names.ANNOTATION_GROUP_NAME))),
        super_pod=intern(text(annotations.get(names.ANNOTATION_SUPER_POD))),
        devices=_devices_for_table(spec, annotations),
    )


def _devices_for_table(spec: Mapping[str, Any], annotations: Mapping[str, Any]) -> str:
    """Return what is noted of its chips where a rank table is made of it: of a thousand pods it takes a megabyte."""
    if all(mapping(volume).get("name") != names.RANK_TABLE_VOLUME for volume in items(spec.get("volumes"))):
        return ""
    noted = (text(annotations[key]) for key in sorted(filter(_CONFIGURATION.fullmatch, annotations)))
    return next((written for written in noted if written and len(written) <= _LONGEST_DEVICES), "")


def _port_of_coordinator(spec: Mapping[str, Any]) -> int:
    """Where a coordinator serves. Pods of 0.1 declare it in the node's network only, and all of them have the same."""
    containers = map(mapping, items(spec.get("containers")))
    ports = (mapping(port) for container in containers for port in items(container.get("ports")))
    found = next((port.get("containerPort") for port in ports if port.get("name") == names.COORDINATOR_PORT_NAME), None)
    return found if is_integer(found) else names.COORDINATOR_PORT


def _nodes_named_in_affinity(spec: Mapping[str, Any], operator: str) -> Iterator[str]:
    """Nodes that its affinity excludes or asks for by name, as Hajob writes it (hajob.pods.affinity)."""
    affinity = mapping(mapping(spec.get("affinity")).get("nodeAffinity"))
    required = mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    terms = [mapping(term) for term in items(required.get("nodeSelectorTerms"))]
    fields = [mapping(field) for term in terms for field in items(term.get("matchFields"))]
    return (
        name
        for field in fields
        if field.get("operator") == operator and field.get("key") == "metadata.name"
        for name in items(field.get("values"))
        if isinstance(name, str)
    )


@dataclass(frozen=True, slots=True)
class ForeignPod:
    """The little that is kept of a pod that is none of ours and has chips or ports of a node: there may be thousands.

    Attributes:
        key: namespace and name.
        has_untold_chips: nobody has noted on it which chips it has.
        volcano_mode: of MindCluster's device plugin, whether it is in its Volcano mode; None of any other pod.
    """

    key: str
    node_name: str
    requests: Requests
    priority: int = 0
    ports: HostPorts = ()
    has_untold_chips: bool = False
    volcano_mode: bool | None = None

    @property
    def job_uid(self) -> str:
        """No job's."""
        return ""

    @property
    def has_ended(self) -> bool:
        """One that has ended is kept no longer."""
        return False


def view_of_foreign_pod(pod: Mapping[str, Any]) -> ForeignPod | None:
    """Return what is kept of a pod that is none of ours; None unless it has chips or ports of a node, or gives them."""
    status, spec = mapping(pod.get("status")), mapping(pod.get("spec"))
    if not spec.get("nodeName") or status.get("phase") in ENDED_PHASES:
        return None
    requests, ports = _extended_requests(spec), host_ports_of_spec(spec)
    modes = (volcano_mode_of_plugin(mapping(container)) for container in items(spec.get("containers")))
    mode = next((one for one in modes if one is not None), None)
    if not requests and not ports and mode is None:
        return None
    metadata = pod["metadata"]
    key = f"{metadata.get('namespace', '')}/{metadata['name']}"
    told = chip_numbers(mapping(metadata.get("annotations")), (name for name, _ in requests))
    untold = bool(requests) and not told
    return ForeignPod(key, intern(str(spec["nodeName"])), requests, _pod_priority(spec), ports, untold, mode)


def _extended_requests(spec: Mapping[str, Any]) -> Requests:
    """Extended resources of a pod: what its containers ask for together, or its greediest init container alone."""
    together: dict[str, int] = {}
    alone: dict[str, int] = {}
    for container in items(spec.get("containers")):
        for name, amount in _extended_of_container(mapping(container)):
            together[name] = together.get(name, 0) + amount
    for container in items(spec.get("initContainers")):
        for name, amount in _extended_of_container(mapping(container)):
            alone[name] = max(alone.get(name, 0), amount)
    names_used = sorted(together.keys() | alone.keys())
    found = tuple((name, max(together.get(name, 0), alone.get(name, 0))) for name in names_used)
    return _KNOWN.setdefault(found, found)


_KNOWN: Final[dict[Requests, Requests]] = {}
"""Thousands of pods ask for the same: each request is kept once."""


def _extended_of_container(container: Mapping[str, Any]) -> Requests:
    resources = mapping(container.get("resources"))
    return extended_amounts({**mapping(resources.get("limits")), **mapping(resources.get("requests"))})


def _termination_message(status: Mapping[str, Any]) -> str:
    for told in items(status.get("containerStatuses")):
        container = mapping(told)
        ended = mapping(mapping(container.get("state")).get("terminated"))
        if text(container.get("name")) in MAIN_CONTAINERS and ended.get("exitCode") == 0:
            return text(ended.get("message"))
    return ""


def facts_of_pod(pod: PodView, now_ms: int) -> list[Fact]:
    """Return the facts that this state of a rank pod tells; empty for a pod that is well."""
    if not pod.is_rank_pod:
        return []
    kind = None
    if pod.phase == "Failed" or (pod.exit_code and pod.trouble_code in TAKEN_PODS):
        is_script = pod.failed_by_itself and pod.exit_code in SCRIPT_EXITS
        kind = FactKind.SCRIPT_ENDED if is_script else FactKind.POD_FAILED
    elif pod.trouble_code in UNSTARTABLE:
        kind = FactKind.POD_UNSTARTABLE
    if kind is None:
        return []
    return [_fact_of_pod(pod, kind, pod.trouble_code or pod.phase, pod.trouble or f"pod {pod.name} has failed", now_ms)]


def fact_of_lost_pod(pod: PodView, now_ms: int) -> Fact:
    """Build the fact that a pod which should be there has gone, or is going."""
    going = f"pod {pod.name} {'is being deleted' if pod.deleting else 'is gone'}"
    why = pod.disruption_text or pod.disruption
    return _fact_of_pod(pod, FactKind.POD_LOST, pod.disruption or DELETED, f"{going}: {why}" if why else going, now_ms)


def facts_of_taken_pod(pod: PodView, now_ms: int) -> list[Fact]:
    """Return why a pod that serves no more has ended, where it says so: that is written after it was replaced."""
    found = facts_of_pod(pod, now_ms) or ([fact_of_lost_pod(pod, now_ms)] if pod.is_rank_pod and pod.disruption else [])
    return [fact for fact in found if fact.code in TAKEN_PODS]


def fact_of_stranded_pod(pod: PodView, now_ms: int, *, gone: bool = False) -> Fact:
    """Build the fact that a pod will never start: its node is not ready, or was deleted."""
    kind, what = (FactKind.NODE_DELETED, "was deleted") if gone else (FactKind.NODE_NOT_READY, "is not ready")
    message = f"node {pod.node_name} of pod {pod.name} {what}, and the pod has not started"
    return _fact_of_pod(pod, kind, kind.value if gone else "NodeNotReady", message, now_ms)


def _fact_of_pod(pod: PodView, kind: FactKind, code: str, message: str, now_ms: int) -> Fact:
    return Fact(
        id=f"pod/{pod.uid}/{kind}",
        kind=kind,
        source=Source.POD,
        node_rank=pod.node_rank,
        incarnation=pod.incarnation,
        code=code,
        message=message,
        time_ms=now_ms,
        node_name=pod.node_name,
        exit_code=None if code in EVICTIONS else pod.exit_code,
        unexplained=kind in _ENDS and code not in EVICTIONS and pod.failed_by_itself,
    )


def _trouble_of_containers(status: Mapping[str, Any]) -> tuple[str, str, int | None]:
    """Reason, sentence, exit code of the main container; of the first container in trouble, mains last."""
    failed, why, sentence = status.get("phase") == "Failed", text(status.get("reason")), text(status.get("message"))
    if failed and why in EVICTIONS:
        return why, sentence or "the pod was evicted", None
    found: tuple[str, str, int | None] = ("", "", None)
    for group in ("initContainerStatuses", "containerStatuses"):
        for container in map(mapping, items(status.get(group))):
            state, name = mapping(container.get("state")), text(container.get("name"))
            waiting, ended = mapping(state.get("waiting")), mapping(state.get("terminated"))
            reason, message = text(waiting.get("reason")), text(waiting.get("message"))
            if reason == _STARTED_AGAIN:
                ended = mapping(mapping(container.get("lastState")).get("terminated"))
            code = ended.get("exitCode") if is_integer(ended.get("exitCode")) else None
            if code:
                reason, message = text(ended.get("reason")) or "Error", text(ended.get("message"))
                message = message or f"exit code {code}"
            if code is not None and name in MAIN_CONTAINERS:
                found = (found[0], found[1], code)
            if reason in UNSTARTABLE or code:
                found = (reason, f"container {name}: {reason}: {message}", found[2])
    if not found[1] and failed:
        return (why or "Failed", sentence or "the pod has failed", found[2])
    return found


def _disruption_reason(status: Mapping[str, Any]) -> tuple[str, str]:
    target = _condition_of_kind(status, "DisruptionTarget")
    if target.get("status") != "True":
        return "", ""
    return intern(text(target.get("reason"))), intern(text(target.get("message")))


def _is_left_over(metadata: Mapping[str, Any]) -> bool:
    if "deletionTimestamp" not in metadata or not metadata.get("finalizers"):
        return False
    return metadata.get("deletionGracePeriodSeconds") == 0


def _unschedulable(gates: Sequence[str], status: Mapping[str, Any]) -> str:
    """Return why the pod gets no node: somebody else's scheduling gates, else the scheduler's words."""
    if foreign := [gate for gate in gates if gate != names.GATE]:
        return f"held by the scheduling gate {', '.join(foreign)}: whoever set it has to remove it"
    scheduled = _condition_of_kind(status, "PodScheduled")
    if scheduled.get("status") == "True" or scheduled.get("reason") not in _WITHOUT_A_NODE:
        return ""
    told = text(scheduled.get("message"))
    return "" if _is_gang_incomplete(told) else told


def _is_gang_incomplete(message: str) -> bool:
    """Whether Volcano says no more than that it has not seen all pods of the group yet."""
    found = _GANG.search(message)
    if found is None:
        return False
    counts = [(int(number), word) for number, word in _COUNT.findall(found[1])]
    needed = next((number for number, word in counts if word == "minAvailable"), 0)
    return sum(number for number, word in counts if word != "minAvailable") < needed


def _condition_of_kind(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((c for c in map(mapping, items(status.get("conditions"))) if c.get("type") == kind), {})


def _pod_priority(spec: Mapping[str, Any]) -> int:
    """As the server has written it, by the priority class; it may be below 0."""
    found = spec.get("priority")
    return found if is_integer(found) else 0


def _number_or_default(told: object, default: int) -> int:
    number = parse_whole_number(told)
    return default if number is None else number


def chip_numbers(annotations: Mapping[str, Any], resources: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the numbers of a pod's chips on its node, in the order of its ranks; empty while nobody told.

    Args:
        annotations: of the pod.
        resources: names of what the pod asks for: Volcano lists the chips under the resource's name.
    """
    for key in sorted(filter(_CONFIGURATION.fullmatch, annotations)):
        told = mapping(Reading(Terms(0)).parse_json(text(annotations.get(key)) or "null", key))
        found = [text(mapping(device).get("device_id")) for device in items(told.get("devices"))]
        if found and all(found):
            return tuple(found[:_MOST_CHIPS])
    for key in (_REAL, *resources):
        listed = [name.strip().rpartition("-")[2] for name in text(annotations.get(key)).split(",")]
        if all(listed):
            return tuple(listed[:_MOST_CHIPS])
    return ()
