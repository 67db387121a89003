"""A job as the API server has it, with a status as the operator writes it, for commands that show one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.enums import ConditionStatus
from hajob.api.status import ActionRecoverability, UnmetPrecondition
from hajob.domain.actions import Action
from hajob.domain.facts import FactKind, Origin
from hajob.domain.goodput import Account, Bucket
from hajob.domain.incidents import Cause, Incident, IncidentOutcome, Purpose, RefusedAction
from hajob.domain.timeline import Mark
from hajob.job.status.build import CoordinatorView, Snapshot, build_goodput, build_status
from hajob.job.status.incidents import Record
from hajob.plan.state import JobPhase, JobState
from hajob.sources.pod import PodView
from tests.rigs.example_jobs import UID, example_job

NOW_MS = 1_767_225_900_000
"""2026-01-01 00:05:00 UTC."""
NAMESPACE = "team-a"
NAME = example_job("quickstart").metadata.name
POD = PodView(NAMESPACE, "quickstart-0-aa", "uid-0", UID, names.ROLE_RANK, 0, 1, phase="Running", ready=True)
SILENT = Incident(
    *(2, 2, 1, Purpose.FAULT, Origin.INFRASTRUCTURE, Action.REPLACE),
    Cause(FactKind.AGENT_SILENT, code="AgentSilent", node_name="node-0", first_rank=0, num_ranks=2, step=41),
    opened_ms=NOW_MS - 90_000,
    replaced_nodes=(0,),
    refused=(RefusedAction(Action.RETRY, ("PodAlive",)),),
)
MARKS = {Mark.NOTICED: 3_200, Mark.DECIDED: 3_300, Mark.READY: 5_600, Mark.RESUMED: 6_200}
PROTECTED = tuple(
    ActionRecoverability(
        action=action,
        status=ConditionStatus.FALSE if action is Action.REPLACE else ConditionStatus.TRUE,
        unmet=(UnmetPrecondition(name="FreeNode", message="no free node fits"),) if action is Action.REPLACE else (),
    )
    for action in (Action.RETRY, Action.IN_PLACE, Action.REPLACE, Action.RESTART)
)


def told_job(phase: JobPhase = JobPhase.RUNNING, **fields: Any) -> Json:
    """Return the quickstart job with a status, as JSON; `fields`: of its snapshot, instead of the usual ones."""
    job = example_job("quickstart")
    began = NOW_MS - 300_000
    marks = {mark: NOW_MS - 90_000 + at for mark, at in MARKS.items()} | {Mark.STEP_BEFORE: NOW_MS - 90_000}
    account = Account(began).switch_bucket(Bucket.START_UP, began).book_training(1, began + 20_000)
    usual: dict[str, Any] = {
        "step": 212,
        "step_ms": 1_420,
        "checkpoint_step": 200,
        "pods": [replace(POD, node_name="node-7", incarnation=2)],
        "coordinator": CoordinatorView(connected=True, serving=True),
        "recoverability": PROTECTED,
        "record": Record(SILENT, marks, IncidentOutcome.RECOVERED),
        "goodput": build_goodput(account, NOW_MS),
    }
    state = JobState(phase=phase, attempt=1)
    status = build_status(Snapshot(job, state, 1, NOW_MS - 5_000, **(usual | fields)))
    made = job.to_json()
    made["metadata"] = {"name": NAME, "namespace": NAMESPACE, "uid": UID, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {**made, "status": status.to_json()}
