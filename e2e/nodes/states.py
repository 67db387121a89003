"""What a node knows about the containers of a pod, and how that becomes the pod's status.

Pure: records in, the ``status`` object out, with the phases, reasons and conditions a kubelet
gives (docs/internals/process-nodes.md lists the few that are left out). Times are seconds since the epoch.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from e2e.nodes.config import JsonObject


class Kind(enum.Enum):
    """The three places a container can have in a pod."""

    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = "main"


@dataclass(frozen=True)
class ContainerWaiting:
    """Not started yet, or waiting to be started again."""

    reason: str
    message: str = ""


@dataclass(frozen=True)
class Running:
    """Its first process runs."""

    started_at: float
    container_id: str


@dataclass(frozen=True)
class Terminated:
    """Its first process has ended, and with it all others of the container. Codes above 128 are 128 + signal."""

    exit_code: int
    reason: str
    started_at: float
    finished_at: float
    container_id: str = ""
    message: str = ""


State = ContainerWaiting | Running | Terminated


@dataclass
class ContainerRecord:
    """One container as the node sees it now. ``last`` is how it ended the time before."""

    name: str
    image: str
    kind: Kind
    state: State = field(default_factory=lambda: ContainerWaiting("ContainerCreating"))
    last: Terminated | None = None
    restart_count: int = 0
    started: bool = False
    ready: bool = False


@dataclass(frozen=True)
class Failure:
    """Why the node itself failed the pod."""

    reason: str
    message: str


@dataclass
class PodRecord:
    """A pod as its node sees it. ``finished``: nothing runs any more and nothing will be started."""

    pod: JsonObject
    containers: list[ContainerRecord]
    host_address: str
    pod_address: str = ""
    start_time: float = 0.0
    sandbox_ready: bool = False
    finished: bool = False
    failure: Failure | None = None

    def of(self, *kinds: Kind) -> list[ContainerRecord]:
        """The containers of these kinds, in the spec's order."""
        return [record for record in self.containers if record.kind in kinds]


def kind_of(spec: JsonObject, container: JsonObject) -> Kind:
    """Which place ``container`` has in the pod spec ``spec``."""
    if all(container is not other for other in spec.get("initContainers") or []):
        return Kind.MAIN
    return Kind.SIDECAR if container.get("restartPolicy") == "Always" else Kind.INIT


def succeeded(record: ContainerRecord) -> bool:
    """Whether the container has ended well."""
    return isinstance(record.state, Terminated) and record.state.exit_code == 0


def initialized(record: PodRecord) -> bool:
    """Whether every init container has ended well and every sidecar has started."""
    inits = all(succeeded(container) for container in record.of(Kind.INIT))
    return inits and all(sidecar.started or has_run(sidecar) for sidecar in record.of(Kind.SIDECAR))


def phase(record: PodRecord) -> str:
    """The pod's phase by a kubelet's rule: a container that never started keeps it Pending."""
    if record.failure:
        return "Failed"
    if record.finished:
        good = all(succeeded(container) for container in record.of(Kind.INIT, Kind.MAIN))
        return "Succeeded" if good else "Failed"
    never = any(not has_run(container) for container in record.of(Kind.MAIN))
    return "Pending" if never or not initialized(record) else "Running"


def has_run(record: ContainerRecord) -> bool:
    """Whether the container was started at least once."""
    return not isinstance(record.state, ContainerWaiting) or record.last is not None


def status(record: PodRecord, previous: Mapping[str, JsonObject], now: float) -> JsonObject:
    """The whole ``status`` a node writes.

    Args:
        record: the pod as it is.
        previous: the conditions written last, by type; an unchanged one keeps its transition time.
        now: the time of a change.
    """
    conditions = _conditions(record, phase(record))
    for condition in conditions:
        before = previous.get(condition["type"])
        unchanged = before is not None and before["status"] == condition["status"]
        condition["lastTransitionTime"] = before["lastTransitionTime"] if unchanged and before else timestamp(now)
    address = {"podIP": record.pod_address, "podIPs": [{"ip": record.pod_address}]} if record.pod_address else {}
    return {
        "phase": phase(record),
        "reason": record.failure.reason if record.failure else None,
        "message": record.failure.message if record.failure else None,
        "observedGeneration": record.pod["metadata"].get("generation"),
        "conditions": conditions,
        "hostIP": record.host_address,
        "hostIPs": [{"ip": record.host_address}],
        **address,
        "startTime": timestamp(record.start_time),
        "initContainerStatuses": [_container(c) for c in record.of(Kind.INIT, Kind.SIDECAR)] or None,
        "containerStatuses": [_container(c) for c in record.of(Kind.MAIN)],
    }


def _conditions(record: PodRecord, current: str) -> list[JsonObject]:
    done = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(current)
    unready = [c.name for c in record.of(Kind.SIDECAR, Kind.MAIN) if not c.ready]
    containers = _condition("ContainersReady", not unready and not done, done or "ContainersNotReady")
    if unready and not done:
        containers["message"] = f"containers with unready status: [{' '.join(unready)}]"
    ready = {**containers, "type": "Ready"}
    gates = [] if unready or done else _closed_gates(record.pod)
    if gates:
        ready.update(_condition("Ready", holds=False, reason="ReadinessGatesNotReady"))
        ready["message"] = "; ".join(
            f'corresponding condition of pod readiness gate "{gate}" is not true' for gate in gates
        )
    return [
        _condition("PodReadyToStartContainers", record.sandbox_ready and not record.finished),
        _initialized_condition(record, current),
        ready,
        containers,
        _condition("PodScheduled", holds=True),
    ]


def _closed_gates(pod: JsonObject) -> list[str]:
    true = {c["type"] for c in (pod.get("status") or {}).get("conditions") or [] if c["status"] == "True"}
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or []]
    return [gate for gate in gates if gate not in true]


def _initialized_condition(record: PodRecord, current: str) -> JsonObject:
    if current == "Succeeded":
        return _condition("Initialized", holds=True) | {"reason": "PodCompleted"}
    missing = [c.name for c in record.of(Kind.INIT) if not succeeded(c)]
    missing += [c.name for c in record.of(Kind.SIDECAR) if not c.started and not has_run(c)]
    condition = _condition("Initialized", not missing, "ContainersNotInitialized")
    if missing:
        condition["message"] = f"containers with incomplete status: [{' '.join(missing)}]"
    return condition


def _condition(name: str, holds: bool, reason: str = "") -> JsonObject:
    """``None`` for reason and message on purpose: the status is merged, and an old reason must go."""
    shown = reason if reason and not holds else None
    return {"type": name, "status": "True" if holds else "False", "reason": shown, "message": None}


def _container(record: ContainerRecord) -> JsonObject:
    described: JsonObject = {
        "name": record.name,
        "image": record.image,
        "imageID": f"process-image://{record.image}",
        "restartCount": record.restart_count,
        "ready": succeeded(record) if record.kind is Kind.INIT else record.ready,
        "started": record.started,
        "state": _state(record.state),
        "lastState": _state(record.last) if record.last else {},
    }
    if not isinstance(record.state, ContainerWaiting):
        described["containerID"] = record.state.container_id
    return described


def _state(state: State) -> JsonObject:
    if isinstance(state, ContainerWaiting):
        return {"waiting": _without_empty(reason=state.reason, message=state.message)}
    if isinstance(state, Running):
        return {"running": {"startedAt": timestamp(state.started_at)}}
    return {
        "terminated": {
            "exitCode": state.exit_code,
            "startedAt": timestamp(state.started_at),
            "finishedAt": timestamp(state.finished_at),
            **_without_empty(reason=state.reason, message=state.message, containerID=state.container_id),
        }
    }


def _without_empty(**fields: str) -> JsonObject:
    return {name: value for name, value in fields.items() if value}


def timestamp(seconds: float) -> str:
    """Kubernetes' ``metav1.Time``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def conditions_by_type(conditions: Iterable[JsonObject]) -> dict[str, JsonObject]:
    """Index conditions by their type."""
    return {condition["type"]: condition for condition in conditions}
