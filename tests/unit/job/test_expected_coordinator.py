"""Whose silence may mean that this operator is cut off: a coordinator that should answer by now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.api import constants as names
from hajob.domain.actions import Action
from hajob.domain.facts import Origin
from hajob.domain.incidents import Cause, Incident, Purpose
from hajob.job.observe import expected_coordinator
from hajob.plan.state import JobPhase, JobState
from hajob.pods.naming import coordinator_pod_name
from tests.rigs.snapshots import RUNNING, rank, snapshot

INCIDENT = Incident(2, 2, 0, Purpose.FAULT, Origin.INFRASTRUCTURE, Action.RESTART, Cause(), 0)


def held_from(phase: JobPhase) -> JobState:
    return replace(RUNNING, phase=JobPhase.HELD, held_from=phase, incident=INCIDENT)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (RUNNING, True),
        (held_from(JobPhase.RUNNING), True),
        (replace(RUNNING, phase=JobPhase.STARTING), False),
        (held_from(JobPhase.STARTING), False),
        (held_from(JobPhase.PENDING), False),
    ],
)
def test_a_start_that_was_never_heard_says_nothing(state: JobState, expected: bool) -> None:
    name = coordinator_pod_name(snapshot().job, 1, apart=True)
    pod = rank(-1, name=name, role=names.ROLE_COORDINATOR, node_name="node-9")
    seen = snapshot(state=state, pods=[pod])
    seen.coordinator.note_dialled_pod(1, "127.0.1.9:7070")
    assert (expected_coordinator(seen) is not None) is expected
