"""Ranks end together, one of them has printed why: its words count, whoever was heard first."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.domain.facts import Fact, FactKind, Source
from hajob.plan import effects as do
from hajob.plan import events as e
from hajob.plan.policy import Policy
from hajob.plan.state import JobPhase, JobState
from tests.rigs.plan_rig import Rig

REASON = "rank 0 ended with 0 and did not train: could not load the checkpoint"
SILENCE = "rank 5 ended with 0 and has trained no step"


def starting(max_program_failures: int = 1) -> Rig:
    """The ranks of the first attempt, of incarnation 1, are being started."""
    rig = Rig(JobState(), policy=Policy(max_program_failures=max_program_failures))
    rig.tell(e.Accepted())
    return rig


def ended(rank: int, message: str, incarnation: int = 1, **more: object) -> e.FactSeen:
    given = {"ranks": (rank,), "exit_code": 0, "code": "NotFinished", "time_ms": 2_000_000, **more}
    fact = Fact(
        f"{rank}/{incarnation}",
        FactKind.PROCESS_EXITED,
        message=message,
        incarnation=incarnation,
        **given,  # type: ignore[arg-type]
    )
    return e.FactSeen(fact=fact)


def silent(rank: int = 5, incarnation: int = 1) -> e.FactSeen:
    return ended(rank, SILENCE, incarnation, unexplained=True)


def test_a_reason_told_after_the_restart_is_the_cause() -> None:
    rig = starting()
    rig.tell(silent())
    assert rig.incident.cause.message == SILENCE
    began, opened = rig.incident.cause.time_ms, rig.incident.opened_ms
    done = rig.tell(ended(0, REASON, time_ms=2_000_400))
    cause = rig.incident.cause
    assert (cause.message, cause.first_rank, cause.num_ranks) == (REASON, 0, 1)
    assert (cause.time_ms, rig.incident.opened_ms) == (began, opened)
    assert done == (do.ExplainIncident(rig.incident.number, cause),)
    assert (rig.at(JobPhase.RESTARTING), rig.state.restarts_program) == (True, 1)


def test_a_reason_told_first_stays_the_cause() -> None:
    rig = starting()
    rig.tell(ended(0, REASON))
    rig.tell(silent())
    assert rig.incident.cause.message == REASON


def test_the_first_of_two_reasons_stays_the_cause() -> None:
    rig = starting()
    rig.tell(silent())
    rig.tell(ended(0, REASON))
    assert rig.tell(ended(1, "another one")) == ()
    assert rig.incident.cause.message == REASON


@pytest.mark.parametrize("last", ["silent", "reason"])
def test_a_job_that_gives_up_names_the_reason(last: str) -> None:
    rig = starting()
    rig.tell(silent())
    second = rig.state.incarnation
    if last == "silent":
        rig.tell(ended(0, REASON))
        done = rig.tell(silent(incarnation=second))
    else:
        done = rig.tell(ended(0, REASON, second))
    assert rig.at(JobPhase.FAILED)
    (failed,) = [effect for effect in done if isinstance(effect, do.FailJob)]
    assert failed.message.startswith(f"{REASON} (rank 0; 2nd failure of the program")


def test_what_a_closed_incident_learnt_is_told() -> None:
    rig = starting()
    rig.tell(silent())
    done = rig.tell(ended(0, REASON, rig.state.incarnation))
    assert rig.kinds(done)[0] == "ExplainIncident"
    assert isinstance(done[0], do.ExplainIncident)
    assert (done[0].number, done[0].cause.message) == (rig.last_incident.number, REASON)


@pytest.mark.parametrize(
    "fact",
    [
        pytest.param(ended(0, "older", incarnation=0), id="of an attempt before"),
        pytest.param(ended(0, "ended", exit_code=-9), id="ended by a signal"),
        pytest.param(ended(0, "silent too", unexplained=True), id="as silent"),
        pytest.param(ended(99, "of no rank"), id="of no rank of the job"),
    ],
)
def test_what_tells_no_reason_leaves_the_cause(fact: e.FactSeen) -> None:
    rig = starting()
    rig.tell(silent())
    rig.tell(fact)
    assert rig.incident.cause.message == SILENCE


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (FactKind.POD_FAILED, {"node": 2, "source": Source.POD, "exit_code": 65}),
        (FactKind.PROCESS_FAULT, {"ranks": (4,), "source": Source.MINDIO}),
    ],
)
def test_what_others_saw_of_it_is_explained_by_the_rank(kind: FactKind, more: dict[str, Any]) -> None:
    rig = starting()
    rig.see(kind, message="ended", unexplained=True, **more)
    assert rig.incident.cause.message == "ended"
    assert rig.state.incarnation > rig.last_fact.incarnation
    rig.tell(ended(4, REASON))
    assert rig.incident.cause.message == REASON
