"""What MindIO or a coordinator says of an earlier attempt decides nothing about the one that runs now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.domain.incidents import RestoredFrom
from hajob.plan import events as e
from hajob.plan.policy import Mode, Policy
from hajob.plan.state import JobPhase
from tests.rigs.plan_rig import Rig
from tests.rigs.plan_worlds import VIEW


def shrunk_in_its_second_attempt() -> Rig:
    rig = Rig.running(view=replace(VIEW, free_nodes=0))
    rig.state = replace(rig.state, incarnation=4, base=4, attempt=2, coordinator=4)
    rig.silent(2)
    rig.deadline("Recovery")
    rig.tell(e.Resumed(5, 11))
    assert rig.at(JobPhase.SHRUNK)
    return rig


@pytest.mark.parametrize("code", [404, 406, 499])
def test_a_shrunk_job_ignores_the_result_of_another_attempt(code: int) -> None:
    rig = shrunk_in_its_second_attempt()
    rig.tell(e.ResultReported(3, code, "rollback failed"))
    assert rig.at(JobPhase.SHRUNK)
    assert rig.ignored.startswith("OtherIncarnation")


def test_a_shrunk_job_without_protection_ignores_it_too() -> None:
    rig = shrunk_in_its_second_attempt()
    rig.state = replace(rig.state, phase=JobPhase.UNPROTECTED)
    rig.tell(e.ResultReported(3, 406, "rollback failed"))
    assert rig.at(JobPhase.UNPROTECTED)


@pytest.mark.parametrize(
    ("code", "strategy", "then", "restored"),
    [
        (404, "", JobPhase.RESTARTING, RestoredFrom.PERIODIC_CHECKPOINT),
        (499, "", JobPhase.RESTARTING, RestoredFrom.PERIODIC_CHECKPOINT),
        (406, "recover", JobPhase.SAVING, None),
        (0, "dump", JobPhase.RESTARTING, RestoredFrom.SAVED_CHECKPOINT),
    ],
)
def test_a_stop_that_no_fact_explains_ends_in_a_decision(
    code: int, strategy: str, then: JobPhase, restored: RestoredFrom | None
) -> None:
    """The coordinator took processes for ranks that the operator knows to be old: Running would be said for ever."""
    rig = Rig.running()
    rig.tell(e.Stopped(7, (3,)))
    assert rig.at(JobPhase.RUNNING)
    rig.tell(e.ResultReported(7, code, "nobody decided", strategy))
    assert rig.at(then)
    assert rig.incident.restored_from is restored


@pytest.mark.parametrize("code", [404, 499, 406])
def test_nothing_is_decided_of_it_while_a_person_looks(code: int) -> None:
    rig = Rig.running(policy=Policy(mode=Mode.OBSERVE))
    rig.tell(e.ResultReported(7, code, "nobody decided"))
    assert rig.at(JobPhase.HELD)


def test_a_result_of_an_incident_that_is_over_ends_nothing() -> None:
    rig = Rig.running()
    rig.tell(e.ResultReported(rig.state.incarnation, 499, "late"))
    assert rig.at(JobPhase.RUNNING)


@pytest.mark.parametrize("phase", [JobPhase.PENDING, JobPhase.RESTARTING, JobPhase.RUNNING, JobPhase.HELD])
def test_the_last_step_of_another_attempt_ends_nothing(phase: JobPhase) -> None:
    """One report may say that MindIO serves, upon which a held job starts anew, and that the last step has ended."""
    rig = Rig.running()
    rig.state = replace(rig.state, phase=phase, attempt=2)
    rig.tell(e.LastStepEnded(saved=True, attempt=1))
    assert rig.at(phase)
    assert rig.ignored.startswith("OtherAttempt")
