"""The policies of one job, and what they remember."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from hajob.job.policies.drains import DrainMemo, drains
from hajob.job.policies.expiry import expiry
from hajob.job.policies.finished_pods import finished_pods
from hajob.job.policies.gang_start import GangMemo, gang_start
from hajob.job.policies.outdated_pods import BootMemo, outdated_pods
from hajob.job.policies.pauses import PauseMemo, pauses
from hajob.job.policies.pods import PodMemo, pods
from hajob.job.policies.spares import SpareMemo, spares
from hajob.job.policies.start_gate import StartMemo, start_gate
from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import Wants


@dataclass(slots=True)
class PolicyMemos:
    """What the policies of one job remember between two rounds; a new leader begins without it."""

    drains: DrainMemo
    boots: BootMemo = field(default_factory=BootMemo)
    gang: GangMemo = field(default_factory=GangMemo)
    pauses: PauseMemo = field(default_factory=PauseMemo)
    pods: PodMemo = field(default_factory=PodMemo)
    spares: SpareMemo = field(default_factory=SpareMemo)
    start: StartMemo = field(default_factory=StartMemo)


def policies_with(memos: PolicyMemos) -> tuple[Callable[[JobSnapshot], Wants], ...]:
    """Return all policies, each with its memo; of two changes of one object that of the later one counts."""
    return (
        partial(start_gate, memo=memos.start),
        partial(outdated_pods, memo=memos.boots),
        partial(gang_start, memo=memos.gang),
        partial(drains, memo=memos.drains),
        partial(pauses, memo=memos.pauses),
        partial(spares, memo=memos.spares),
        partial(pods, memo=memos.pods, gang=memos.gang, boots=memos.boots),
        finished_pods,
        expiry,
    )
