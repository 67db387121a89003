"""Holds a new attempt back until the previous one has ended: both write into the same checkpoint directory.

The API server shows which ranks have ended: a kubelet lets a pod go only once its containers have ended. Where a pod
had to be deleted without that proof, the start waits until its agent has ended the ranks (hajob.plan.fencing), or a
person has marked the node as out of service (docs/decisions/0033-old-ranks-are-gone.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from hajob.domain.text import counted_noun
from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import Wants
from hajob.plan import fencing

_NAMED: Final = 3
LOOK_SECONDS: Final = 5.0
"""So often it is looked whether a person has taken a node out of service: no event tells of nodes without a pod."""
STUCK_SECONDS: Final = 45.0
"""Pods that have not ended for so long do not do so by themselves: the start-up clock stands still."""


@dataclass(slots=True)
class StartMemo:
    """What is remembered of a start that is held back.

    Attributes:
        held_since: since when its order waits, in seconds of the monotonic clock; None: none waits.
    """

    held_since: float | None = None


def want_start_gate(snapshot: JobSnapshot, memo: StartMemo) -> Wants:
    """Want to be asked again when time alone lets a held start begin, or makes what it waits for overdue."""
    if memo.held_since is None:
        return Wants()
    # That a pod is gone is an event of its own: only what no event tells needs the clock.
    if snapshot.earlier_ranks:
        overdue_at = memo.held_since + STUCK_SECONDS
        return Wants(again_at=overdue_at if overdue_at > snapshot.now else inf)
    return Wants(again_at=snapshot.now + min(_fence_wait_left_ms(snapshot) / 1000, LOOK_SECONDS))


def holds_start(snapshot: JobSnapshot, memo: StartMemo) -> bool:
    """Return whether the order that starts ranks must wait, and note since when."""
    closed = bool(why_start_waits(snapshot))
    since = snapshot.now if memo.held_since is None else memo.held_since
    memo.held_since = since if closed else None
    return closed


def why_start_waits(snapshot: JobSnapshot) -> str:
    """Return what a start waits for, in words; empty for nothing."""
    if old := snapshot.earlier_ranks:
        named = ", ".join(sorted(old)[:_NAMED])
        return f"waiting for {counted_noun(len(old), 'pod')} of the previous attempt to end: {named}"
    if not _fence_wait_left_ms(snapshot):
        return ""
    where = ", ".join(sorted(snapshot.state.unreachable)[:_NAMED])
    return f"waiting up to {fencing.FENCE_SECONDS} s: ranks of the previous attempt may still run on {where}"


def why_start_stuck(snapshot: JobSnapshot, memo: StartMemo) -> str:
    """Return which pods of the previous attempt are overdue, in words; empty for none."""
    is_overdue = memo.held_since is not None and snapshot.now - memo.held_since >= STUCK_SECONDS
    return why_start_waits(snapshot) if is_overdue and snapshot.earlier_ranks else ""


def _fence_wait_left_ms(snapshot: JobSnapshot) -> int:
    known_dead = [name for name, node in snapshot.nodes.items() if node.is_out_of_service]
    return fencing.fence_wait_ms(snapshot.state, snapshot.now_ms, known_dead)
