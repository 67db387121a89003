"""When the gates of a start are opened: for all of its pods at once, or for none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.domain.actions import Action
from hajob.domain.facts import Origin
from hajob.domain.incidents import Cause, Incident, Purpose
from hajob.job.policies.gang_start import GangMemo, want_gang_start
from hajob.job.wants import Patch
from hajob.plan.state import JobPhase, JobState
from tests.rigs.snapshots import RUNNING, rank, snapshot

STARTING = replace(RUNNING, phase=JobPhase.PENDING)
INCIDENT = Incident(2, 2, 0, Purpose.FAULT, Origin.INFRASTRUCTURE, Action.RESTART, Cause(), 0)
HELD = replace(STARTING, phase=JobPhase.HELD, held_from=JobPhase.PENDING, incident=INCIDENT)
GATED = [rank(number, node_name="", phase="Pending", ready=False, gate=0) for number in range(4)]


@pytest.mark.parametrize("state", [STARTING, HELD], ids=["starts", "held at its start"])
@pytest.mark.parametrize("may_start", [True, False])
def test_gates_open_once_there_are_nodes_for_all(
    state: JobState, may_start: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start goes on beside a fault that is held back, and takes no node before it can have all."""
    seen = snapshot(state=state, pods=GATED)
    monkeypatch.setattr(type(seen), "may_start", may_start)
    opened = [change for change in want_gang_start(seen, GangMemo()).changes if isinstance(change, Patch)]
    assert len(opened) == (4 if may_start else 0)
