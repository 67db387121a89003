"""Events of a planned pause: its request and the end of its work, read from the spec and the pods of the work. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hajob.api.base import format_time
from hajob.api.spec import HATrainingJobSpec, PlannedPause
from hajob.domain.facts import Fact, FactKind, Source
from hajob.plan import events
from hajob.plan.state import JobPhase, JobState
from hajob.sources.pod import PodView

NODE_IS_BAD: Final = 2
"""Exit code of work that found its node unfit; every other one but 0 says that the work itself has failed."""
CODE: Final = "PauseHookFailed"
ENDING_SECONDS: Final = 30
"""The kubelet ends work that takes too long; so much later it is waited for no more."""

Pods = Mapping[int, PodView]


def identity_of_request(pause: PlannedPause | None) -> str:
    """Return an identity of a request; empty for none."""
    return format_time(pause.request_time) if pause is not None else ""


def nodes_of_work(pause: PlannedPause, serving: Pods) -> dict[int, str]:
    """Return the node names where the work of a pause is to be done, by node rank."""
    chosen = frozenset(pause.node_names)
    places = {rank: pod.node_name for rank, pod in sorted(serving.items()) if pod.node_name}
    return {rank: name for rank, name in places.items() if not chosen or name in chosen}


def id_of_bad_node(hook: PodView) -> str:
    """Return the id of the fact that the work has found its node bad."""
    return f"pause/{hook.uid}"


def is_node_unfit(hook: PodView) -> bool:
    """Return whether the work found its node unfit."""
    return hook.has_ended and hook.exit_code == NODE_IS_BAD


def events_of_pause(
    state: JobState,
    spec: HATrainingJobSpec,
    serving: Pods,
    hooks: Pods,
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
        hooks: pods of the work of the open pause by node rank.
        refused: why a pod of the work, of the open pause or else the requested one, cannot be made; empty: all can.
        restart_asked: a restart waits for the end of the pause.
        now_ms: time of the job.
    """
    pause, asked = spec.pause, identity_of_request(spec.pause)
    if state.phase is JobPhase.RUNNING and pause is not None and asked != state.pause_seen and not spec.suspend:
        seconds = pause.timeout_seconds + (ENDING_SECONDS if pause.template is not None else 0)
        yield events.PauseRequested(request=asked, seconds=seconds, reason=_reason_of_pause(pause), refused=refused)
    if not state.holds_still:
        return
    if pause is None or asked != state.pause_seen:
        yield events.PauseEnded(message="spec.pause was removed")
    elif spec.suspend or restart_asked:
        yield events.PauseEnded(message="a suspend or a restart is requested")
    elif pause.template is not None:
        yield from _events_of_work(nodes_of_work(pause, serving), serving, hooks, refused, now_ms)


def _reason_of_pause(pause: PlannedPause) -> str:
    what = (
        "is held" if pause.template is None else f"is held for work on {', '.join(pause.node_names) or 'all its nodes'}"
    )
    return f"the training {what}, for {pause.timeout_seconds} s at most"


def _events_of_work(
    nodes: Mapping[int, str], serving: Pods, hooks: Pods, refused: str, now_ms: int
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
        yield events.PauseEnded(message=told or f"the work is done on {len(done)} nodes")


def _fact_of_bad_node(pod: PodView, hook: PodView, now_ms: int) -> events.FactSeen:
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
