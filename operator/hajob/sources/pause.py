"""Events of a planned pause: its request and the end of its work, read from the spec and the pods of the work. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hajob.api.base import format_time
from hajob.api.enums import Rail, StressOperation
from hajob.api.spec import HATrainingJobSpec, PlannedPause
from hajob.domain.facts import Fact, FactKind, Source
from hajob.domain.text import counted_noun
from hajob.plan import events
from hajob.plan.state import JobPhase, JobState
from hajob.sources.pod import PodView

NODE_IS_BAD: Final = 2
"""Exit code of work that found its node unfit; every other one but 0 says that the work itself has failed."""
CODE: Final = "PauseHookFailed"
ENDING_SECONDS: Final = 30
"""The kubelet ends work that takes too long; so much later it is waited for no more."""

OPERATION_NUMBERS: Final = {StressOperation.AI_CORE: 0, StressOperation.POINT_TO_POINT: 1}
"""TaskD's numbers."""
TESTS_OWN: Final = frozenset({"80818C05", "80818C06"})
"""Codes of faults that a running stress test itself causes (docs/protocols/mindcluster.md, "TaskD")."""
WORDS: Final = {
    1: "the work could not be executed",
    2: "a fault was found",
    3: "it took too long, or a rank fell silent",
    4: "the chip's voltage was not restored",
}
"""TaskD's codes but 0, all is well."""


@dataclass(frozen=True, slots=True)
class TaskdWork:
    """What TaskD did on one node, as a pod of the work that has ended would look.

    Attributes:
        uid: tells one piece of work from the next.
        node_rank: of the serving pod there.
        node_name: of the node.
        exit_code: the worst of TaskD's codes.
        trouble: that code in words; empty: all is well.
    """

    uid: str
    node_rank: int
    node_name: str
    exit_code: int
    trouble: str
    name: str = "TaskD"
    namespace: str = ""
    has_ended: bool = True

    @property
    def phase(self) -> str:
        """Return the phase that a pod would have."""
        return "Failed" if self.exit_code else "Succeeded"


Pods = Mapping[int, PodView]
Works = Mapping[int, PodView | TaskdWork]


def identity_of_request(pause: PlannedPause | None) -> str:
    """Return an identity of a request; empty for none."""
    return format_time(pause.request_time) if pause is not None else ""


def nodes_of_work(pause: PlannedPause, serving: Pods) -> dict[int, str]:
    """Return the node names where the work of a pause is to be done, by node rank."""
    chosen = frozenset(pause.node_names)
    places = {rank: pod.node_name for rank, pod in sorted(serving.items()) if pod.node_name}
    return {rank: name for rank, name in places.items() if not chosen or name in chosen}


def works_of_taskd(pause: PlannedPause, told: str, ranks_per_node: int) -> dict[int, TaskdWork]:
    """Return what TaskD has said of the requested work, by node rank; empty while it has said nothing.

    `told`: the coordinator's word (`pause_result` of sidecar.proto). The nodes are those that the work was for, also
    once a pod has left one of them.
    """
    said: dict[str, Any] = json.loads(told) if told else {}
    request = identity_of_request(pause)
    if said.get("request") != request:
        return {}
    nodes = {int(node): str(name) for node, name in said.get("nodes", {}).items()}
    worst: dict[int, int] = dict.fromkeys(nodes, 0)
    for rank, code in said.get("codes", {}).items():
        node = int(rank) // ranks_per_node
        if node in worst:
            worst[node] = _worse_code(worst[node], int(code))
    return {
        node: TaskdWork(f"{request}/{node}", node, nodes[node], code, WORDS.get(code, ""))
        for node, code in worst.items()
    }


def _worse_code(one: int, other: int) -> int:
    """A fault that was found counts more than work that was not done."""
    return NODE_IS_BAD if NODE_IS_BAD in (one, other) else max(one, other)


def work_for_taskd(pause: PlannedPause, serving: Pods, ranks_per_node: int) -> str:
    """Return the work of a pause for the coordinator (`pause_work` of sidecar.proto); empty: it is none of TaskD's."""
    if not pause.is_work_of_taskd:
        return ""
    places = nodes_of_work(pause, serving)
    work: dict[str, Any] = {"request": identity_of_request(pause), "nodes": places}
    if pause.stress_test is not None:
        operations = sorted(OPERATION_NUMBERS[one] for one in pause.stress_test.operations)
        ranks = (rank for node in places for rank in range(node * ranks_per_node, (node + 1) * ranks_per_node))
        work["stress"] = {str(rank): operations for rank in ranks}
    else:
        by_name = {name: node for node, name in places.items()}
        work["rails"] = {
            str(by_name[one.node_name] * ranks_per_node + chip): one.rail is Rail.BORROWED
            for one in pause.switch_rails
            if one.node_name in by_name
            for chip in one.chips
            if chip < ranks_per_node
        }
    return json.dumps(work, sort_keys=True)


def id_of_bad_node(hook: PodView | TaskdWork) -> str:
    """Return the id of the fact that the work has found its node bad."""
    return f"pause/{hook.uid}"


def is_node_unfit(hook: PodView | TaskdWork) -> bool:
    """Return whether the work found its node unfit."""
    return hook.has_ended and hook.exit_code == NODE_IS_BAD


def events_of_pause(
    state: JobState,
    spec: HATrainingJobSpec,
    serving: Pods,
    hooks: Works,
    refused: str,
    *,
    restart_asked: bool,
    now_ms: int,
) -> Iterator[events.JobEvent]:
    """Yield whether a pause is requested, and whether its work is done.

    Args:
        state: of the job.
        spec: of the job.
        serving: the rank pods by node rank.
        hooks: pods of the work of the open pause by node rank, or what TaskD did there.
        refused: why a pod of the work, of the open pause or else the requested one, cannot be made; empty: all can.
        restart_asked: a restart waits for the end of the pause.
        now_ms: time of the job.
    """
    pause, asked = spec.pause, identity_of_request(spec.pause)
    if state.phase is JobPhase.RUNNING and pause is not None and asked != state.pause_seen and not spec.suspend:
        seconds = pause.timeout_seconds + (ENDING_SECONDS if does_work(pause) else 0)
        yield events.PauseRequested(request=asked, seconds=seconds, reason=_reason_of_pause(pause), refused=refused)
    if not state.holds_still:
        return
    if pause is None or asked != state.pause_seen:
        yield events.PauseEnded(message="spec.pause was removed")
    elif spec.suspend or restart_asked:
        yield events.PauseEnded(message="a suspend or a restart is requested")
    elif does_work(pause):
        yield from _events_of_work(nodes_of_work(pause, serving), serving, hooks, refused, now_ms)


def does_work(pause: PlannedPause) -> bool:
    """Return whether the pause ends by itself, with its work."""
    return pause.template is not None or pause.is_work_of_taskd


def _reason_of_pause(pause: PlannedPause) -> str:
    what = (
        "is held" if not does_work(pause) else f"is held for work on {', '.join(pause.node_names) or 'all its nodes'}"
    )
    return f"the training {what}, for {pause.timeout_seconds} s at most"


def _events_of_work(
    nodes: Mapping[int, str], serving: Pods, hooks: Works, refused: str, now_ms: int
) -> Iterator[events.JobEvent]:
    """All work has ended: of bad nodes as facts, else that the training goes on."""
    done = {rank: hooks[rank] for rank in nodes if rank in hooks and hooks[rank].has_ended}
    if len(done) < len(nodes) and not refused:
        return
    bad = [rank for rank, hook in done.items() if is_node_unfit(hook)]
    for rank in bad:
        hook = done[rank]
        yield _fact_of_bad_node(serving[rank], hook, now_ms)
    if not bad:
        failed = [
            f"{nodes[rank]}: {hook.trouble or hook.phase}" for rank, hook in done.items() if hook.phase == "Failed"
        ]
        told = "; ".join([*([refused] if refused else []), *failed])
        yield events.PauseEnded(message=told or f"the work is done on {counted_noun(len(done), 'node')}")


def _fact_of_bad_node(pod: PodView, hook: PodView | TaskdWork, now_ms: int) -> events.FactSeen:
    """Return the fact that a rank pod's node was found unfit."""
    message = f"the work of the pause found {hook.node_name} unfit ({hook.trouble or 'exit code 2'})"
    fact = Fact(
        id=id_of_bad_node(hook),
        kind=FactKind.CHIP_FAULT,
        source=Source.POD,
        node_rank=pod.node_rank,
        incarnation=pod.incarnation,
        code=CODE,
        message=message,
        time_ms=now_ms,
        node_name=hook.node_name,
    )
    return events.FactSeen(fact=fact)
