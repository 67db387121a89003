"""A start that waits for ranks of the attempt before is looked at again when time alone may change something."""

from __future__ import annotations

from dataclasses import replace

from hajob.job.policies.start_gate import (
    LOOK_SECONDS,
    STUCK_SECONDS,
    StartMemo,
    holds_start,
    want_start_gate,
    why_start_stuck,
)
from hajob.job.wants import Wants
from hajob.plan.fencing import FENCE_SECONDS
from tests.rigs.snapshots import NOW, RUNNING, rank, snapshot

SECOND = replace(RUNNING, incarnation=2, attempt=2, base=2, coordinator=2)


def test_old_pods_are_awaited_and_become_overdue() -> None:
    memo, old = StartMemo(), rank(0)
    assert holds_start(snapshot(state=SECOND, pods=[old]), memo)
    assert want_start_gate(snapshot(state=SECOND, pods=[old]), memo) == Wants(again_at=NOW + STUCK_SECONDS)
    assert not why_start_stuck(snapshot(state=SECOND, pods=[old]), memo)
    later = snapshot(state=SECOND, pods=[old], now=NOW + STUCK_SECONDS)
    assert want_start_gate(later, memo) == Wants()
    assert why_start_stuck(later, memo) == "waiting for 1 pod of the previous attempt to end: job-0"


def test_ranks_out_of_reach_are_outlived() -> None:
    memo, cut_off = StartMemo(), replace(SECOND, unreachable={"node-0": 5_000_000})
    assert holds_start(snapshot(state=cut_off), memo)
    assert want_start_gate(snapshot(state=cut_off), memo) == Wants(again_at=NOW + LOOK_SECONDS)
    nearly = snapshot(state=cut_off, now_ms=5_000_000 + 1000 * FENCE_SECONDS - 100)
    assert want_start_gate(nearly, memo) == Wants(again_at=NOW + 0.1)
    assert not holds_start(snapshot(state=cut_off, now_ms=5_000_000 + 1000 * FENCE_SECONDS), memo)
    assert want_start_gate(snapshot(state=cut_off), memo) == Wants()
