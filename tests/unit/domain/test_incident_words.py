"""An incident in sentences, as Events, status and terminal show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hajob.domain.actions import Action
from hajob.domain.facts import FactKind, Origin
from hajob.domain.incident_words import first_sentence, is_planned, whole_sentence
from hajob.domain.incidents import Cause, Incident, IncidentOutcome, Purpose

KILLED = Cause(FactKind.PROCESS_EXITED, code="SIGKILL", node_name="node-1", first_rank=3, num_ranks=1)
INCIDENT = Incident(2, 2, 1, Purpose.FAULT, Origin.INFRASTRUCTURE, Action.IN_PLACE, KILLED, opened_ms=0)


def of(kind: FactKind, action: Action, **cause: Any) -> Incident:
    return replace(INCIDENT, action=action, cause=Cause(kind, **cause), replaced_nodes=(2,))


ON_NODE = {"node_name": "node-1", "first_rank": 4, "num_ranks": 2}


@pytest.mark.parametrize(
    ("incident", "told"),
    [
        (INCIDENT, "rank 3 on node-1 ended: SIGKILL; rank 3 starts again in its pod (InPlace)"),
        (
            of(FactKind.AGENT_SILENT, Action.REPLACE, code="AgentSilent", message="nothing heard for 3.0 s", **ON_NODE),
            "node-1 fell silent; ranks 4-5 go to another node (Replace)",
        ),
        (
            of(FactKind.CHIP_FAULT, Action.REPLACE, message="chip Ascend910-1: 40F84E00 (RestartNPU)", **ON_NODE),
            "chip Ascend910-1: 40F84E00 (RestartNPU) on node-1; ranks 4-5 go to another node (Replace)",
        ),
        (
            of(FactKind.NODE_DELETED, Action.SHRINK, **ON_NODE),
            "node-1 was deleted; the training goes on without ranks 4-5 (Shrink)",
        ),
        (
            of(
                FactKind.PROCESS_EXITED,
                Action.RESTART,
                message="Traceback:\nValueError: shape",
                first_rank=6,
                num_ranks=1,
            ),
            "rank 6 ended: ValueError: shape; the whole job starts again from its newest checkpoint (Restart)",
        ),
        (
            replace(of(FactKind.CORDONED, Action.MIGRATE, node_name="node-1"), purpose=Purpose.MIGRATE),
            "nodes are to be left: node-1 is to be emptied; 1 pod moves while the training goes on (Migrate)",
        ),
        (
            replace(INCIDENT, purpose=Purpose.SUSPEND, action=Action.CHECKPOINT, cause=Cause(code="SuspendRequested")),
            "the job is to be suspended; the last step is saved (Checkpoint)",
        ),
    ],
)
def test_what_happened_and_what_follows(incident: Incident, told: str) -> None:
    assert first_sentence(incident) == told


@pytest.mark.parametrize(
    ("outcome", "outage", "lost", "end"),
    [
        (IncidentOutcome.OPEN, None, 0, ", not done yet"),
        (IncidentOutcome.RECOVERED, 612, 0, "; training again after 0.6 s, no step lost"),
        (IncidentOutcome.RECOVERED, None, 3, "; training again, 3 steps done again"),
        (IncidentOutcome.FAILED, None, 0, ", which did not work"),
        (IncidentOutcome.DONE, None, 0, ", done"),
    ],
)
def test_an_account_ends_with_what_it_cost(outcome: IncidentOutcome, outage: int | None, lost: int, end: str) -> None:
    assert whole_sentence(INCIDENT, outcome, outage, lost) == first_sentence(INCIDENT) + end


def test_what_somebody_asked_for_is_planned() -> None:
    found = {purpose for purpose in Purpose if is_planned(replace(INCIDENT, purpose=purpose))}
    assert found == set(Purpose) - {Purpose.FAULT, Purpose.COORDINATOR}


def test_starts_that_failed_again_are_counted() -> None:
    once, often = (replace(INCIDENT, action=Action.RESTART, restarts=number) for number in (1, 10))
    assert "restarts" not in whole_sentence(once, IncidentOutcome.OPEN, None, 0)
    assert whole_sentence(often, IncidentOutcome.OPEN, None, 0).endswith(", not done yet, 10 restarts")
    assert whole_sentence(often, IncidentOutcome.FAILED, None, 0).endswith(", which did not work, 10 restarts")
    assert whole_sentence(often, IncidentOutcome.RECOVERED, 60_000, 3).endswith(
        "; training again after 60.0 s, 10 restarts, 3 steps done again"
    )
