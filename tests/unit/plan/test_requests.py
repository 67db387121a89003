"""What people ask for, and how a job is given up: saved or not, in which words, and what is left behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.api.event_reasons import EventReason
from hajob.domain.actions import Action, OrderCommand
from hajob.domain.facts import FactKind, Source
from hajob.domain.incidents import Cause, IncidentOutcome, Purpose, RestoredFrom
from hajob.plan import effects as do
from hajob.plan import events as e
from hajob.plan import lifecycle as life
from hajob.plan.context import Context
from hajob.plan.ignored import Ignored, IgnoreReason
from hajob.plan.policy import DEFAULT_ACTION_LIMITS, ActionLimits, CoordinatorLossPolicy, Mode, Policy, Refusal
from hajob.plan.state import JobPhase, JobState, Spend
from tests.rigs.plan_rig import Rig
from tests.rigs.plan_worlds import VIEW, without

ASKED = {Purpose.SUSPEND: e.SuspendRequested(), Purpose.REQUEST: e.RestartRequested()}


def starting(phase: JobPhase = JobPhase.PENDING, **more: object) -> Rig:
    """A job that is being started and has trained nothing yet."""
    rig = Rig(JobState(phase=phase, incarnation=1, attempt=1, base=1), view=replace(VIEW, step=-1), **more)  # type: ignore[arg-type]
    rig.state = replace(rig.state, deadlines={"Startup": rig.now + 1000})
    return rig


def confirming() -> Rig:
    """A job that trains again and only awaits MindIO's word."""
    rig = Rig.naming()
    rig.tell(e.Resumed(2, 6))
    assert rig.at(JobPhase.CONFIRMING)
    return rig


# ------------------------------------------------------------------------------------------------ saving first


@pytest.mark.parametrize("purpose", ASKED)
def test_a_request_while_confirming_closes_a_recovery_as_good(purpose: Purpose) -> None:
    rig = confirming()
    done = rig.tell(ASKED[purpose])
    assert do.CloseIncident(2, IncidentOutcome.RECOVERED, f"{purpose} took over") in done
    assert (rig.incident.number, rig.incident.purpose, rig.action) == (3, purpose, Action.CHECKPOINT)
    assert rig.incident.cause == Cause(code=purpose.value, time_ms=rig.now, step=5)


@pytest.mark.parametrize("purpose", ASKED)
def test_what_is_asked_for_in_a_recovery_goes_on_in_its_incident(purpose: Purpose) -> None:
    rig = Rig.running()
    rig.exits(5)
    rig.tell(ASKED[purpose])
    assert (rig.incident.number, rig.incident.revision, rig.incident.escalated_from) == (2, 2, (Action.IN_PLACE,))


def test_a_restart_that_must_not_lose_the_step_saves_it() -> None:
    rig = Rig.running()
    rig.tell(e.RestartRequested(must_save=True))
    assert (rig.state.phase, rig.action, rig.incident.purpose) == (JobPhase.SAVING, Action.CHECKPOINT, Purpose.REQUEST)


@pytest.mark.parametrize(
    ("phase", "why"),
    [
        (JobPhase.RUNNING, "Checkpoint"),
        (JobPhase.STARTING, "no step of this start has ended"),
        (JobPhase.FAILED, "the job has failed"),
        (JobPhase.UNPROTECTED, ""),
    ],
)
def test_where_the_step_cannot_be_saved_nothing_is_started_anew(phase: JobPhase, why: str) -> None:
    rig = Rig.running() if phase is not JobPhase.STARTING else starting(phase)
    rig.state = replace(rig.state, phase=phase)
    rig.policy = replace(rig.policy, limits={**rig.policy.limits, Action.CHECKPOINT: ActionLimits(0, 60, 60)})
    before = rig.state
    (said,) = rig.tell(e.RestartRequested(must_save=True))
    assert rig.state == before
    assert isinstance(said, do.Announce)
    assert said.reason is EventReason.SAVE_REFUSED
    assert why in said.message
    rig.tell(e.RestartRequested())
    assert rig.state.phase in {JobPhase.RESTARTING, JobPhase.PENDING}, "without the condition it is carried out"


def test_what_follows_a_save_may_be_asked_for_anew() -> None:
    rig = Rig.running()
    rig.tell(e.RestartRequested())
    asked: list[tuple[e.JobEvent, Purpose]] = [
        (e.SuspendRequested(), Purpose.SUSPEND),
        (e.ResumeRequested(), Purpose.REQUEST),
    ]
    for event, purpose in asked:
        assert rig.tell(event) == ()
        assert rig.incident.purpose is purpose


def test_steps_for_a_purpose_are_made_for_it() -> None:
    rig = Rig.running()
    context = Context(rig.state, e.SuspendRequested(), VIEW, rig.policy, rig.now)
    state, _ = life.save_for_purpose(Purpose.SUSPEND, context)
    assert state.incident is not None
    assert state.incident.purpose is Purpose.SUSPEND
    later, _ = life.change_save_purpose(Purpose.REQUEST, Context(state, e.ResumeRequested(), VIEW, rig.policy, rig.now))
    assert later.incident is not None
    assert later.incident.purpose is Purpose.REQUEST


def test_without_a_copy_among_the_living_nothing_is_saved() -> None:
    rig = Rig.running()
    rig.exits(1)
    rig.exits(5)
    rig.tell(e.SuspendRequested())
    assert rig.at(JobPhase.SUSPENDED)
    assert "not saved (the remaining ranks do not hold a complete optimizer copy)" in rig.state.problem


def test_pods_that_only_move_still_hold_their_copies() -> None:
    """Ranks 1 and 5 hold each other's copy; both are being moved, and both live."""
    rig = Rig.running()
    rig.tell(e.MigrateRequested(nodes=(0, 2)))
    rig.tell(e.SuspendRequested())
    assert rig.at(JobPhase.SAVING)


def test_a_save_that_is_asked_for_needs_no_budget() -> None:
    rig = Rig.running(policy=Policy(limits={**DEFAULT_ACTION_LIMITS, Action.CHECKPOINT: ActionLimits(1, 3600, 60)}))
    spent = (Spend("Checkpoint", rig.now),)
    rig.state = replace(rig.state, spent=spent)
    rig.tell(e.SuspendRequested())
    assert rig.at(JobPhase.SAVING)
    assert rig.state.spent == spent


# ------------------------------------------------------------------------------------------------ suspended


def test_everything_that_speaks_against_a_save_is_said() -> None:
    rig = starting(JobPhase.STARTING)
    rig.view = replace(rig.view, coordinator_ready=False)
    rig.tell(e.SuspendRequested())
    assert rig.state.problem == (
        "the current step is not saved (the newest finished step is -1; MindIO needs step 1; "
        "the MindIO controller does not serve); the job resumes from the newest checkpoint before it"
    )


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (e.ResultReported(2, 499, "", "dump"), "the save failed with code 499"),
        (e.ResultReported(2, 404, "no such file", "dump"), "the save failed with code 404 no such file"),
        (e.DeadlineReached(name="Recovery"), "the save timed out"),
    ],
)
def test_why_a_save_failed_is_told_whole(event: e.JobEvent, why: str) -> None:
    rig = Rig.running()
    rig.tell(e.SuspendRequested())
    rig.tell(event, rig.state.deadlines["Recovery"])
    assert rig.state.problem == (
        f"the current step is not saved ({why}); the job resumes from the newest checkpoint before it"
    )


def test_a_shrunk_job_is_whole_after_a_suspend_and_at_its_end() -> None:
    rig = Rig.shrunk()
    rig.view = replace(VIEW, coordinator_ready=False)
    rig.tell(e.SuspendRequested())
    assert (rig.state.phase, rig.state.shrunk) == (JobPhase.SUSPENDED, None)
    rig = Rig.shrunk()
    rig.tell(e.AllFinished())
    assert (rig.state.phase, rig.state.shrunk) == (JobPhase.COMPLETE, None)


# ------------------------------------------------------------------------------------------------ given up


@pytest.mark.parametrize("phase", [JobPhase.PENDING, JobPhase.STARTING, JobPhase.WARMING, JobPhase.RESTARTING])
def test_an_unworkable_job_fails_at_once_with_its_words(phase: JobPhase) -> None:
    rig = starting(phase)
    done = rig.tell(e.Unworkable(reason="ImageUnusable", message="the image has no mindio_ttp"))
    assert done == (do.FailJob("ImageUnusable", "the image has no mindio_ttp"),)
    assert (rig.state.phase, rig.state.deadlines) == (JobPhase.FAILED, {})


def test_a_restart_that_turns_out_unworkable_closes_its_incident() -> None:
    rig = Rig.running(policy=Policy(coordinator_loss=CoordinatorLossPolicy.IMMEDIATELY))
    rig.lose_for_good()
    done = rig.tell(e.Unworkable(reason="ImageUnusable", message="it has no torchrun"))
    assert do.CloseIncident(2, IncidentOutcome.FAILED, "it has no torchrun") in done
    assert rig.state.incident is None


def test_a_start_that_takes_too_long_is_never_left_without_words() -> None:
    rig = starting()
    done = rig.deadline("Startup")
    assert do.FailJob("StartupDeadlineExceeded", "startupDeadlineSeconds are over") in done


def test_a_job_out_of_time_says_what_it_was_recovering_from() -> None:
    rig = Rig.running()
    rig.exits(5, message="Killed")
    rig.policy = replace(rig.policy, active_deadline_seconds=1)
    rig.tell(e.PolicyChanged())
    done = rig.deadline("Active")
    assert do.FailJob("ActiveDeadlineExceeded", "activeDeadlineSeconds are over: Killed") in done


@pytest.mark.parametrize(
    ("policy", "reason", "message"),
    [
        (
            without(Action.IN_PLACE, Action.REPLACE, Action.SHRINK, Action.CHECKPOINT, Action.RESTART),
            "RestartNotAllowed",
            "boom (rank 5; the spec does not allow Restart)",
        ),
        (
            replace(
                without(Action.IN_PLACE, Action.REPLACE, Action.SHRINK, Action.CHECKPOINT),
                refusals={Action.RESTART: (Refusal("SharedFolder", "folder /ckpt is of no use"),)},
            ),
            "NothingLeft",
            "boom (rank 5; folder /ckpt is of no use)",
        ),
    ],
)
def test_the_last_action_says_why_nothing_is_left(policy: Policy, reason: str, message: str) -> None:
    rig = Rig.running(policy=policy)
    done = rig.exits(5, message="boom")
    assert rig.at(JobPhase.FAILED)
    assert done == (do.FailJob(reason, message),)


def test_giving_up_without_a_decision_says_its_own_reason() -> None:
    context = Context(Rig.running().state, e.Accepted(), VIEW, Policy(), 0)
    assert life.fail_job("TooLate", "it is over", context)[1] == (do.FailJob("TooLate", "it is over"),)
    assert life.fail_job("TooLate", "", context)[1] == (do.FailJob("TooLate", ""),)


def test_a_step_that_does_nothing_says_why() -> None:
    rig = Rig.running()
    context = Context(rig.state, e.Accepted(), VIEW, Policy(), 0)
    assert life.ignore_event(IgnoreReason.NOT_DUE, context) == (rig.state, ())
    assert context.ignored == Ignored(IgnoreReason.NOT_DUE, "in Running, Accepted(incarnation=0)")
    context.ignored = better = Ignored(IgnoreReason.STALE, "a better reason")
    life.ignore_event(IgnoreReason.NOT_DUE, context)
    assert context.ignored is better


# ------------------------------------------------------------------------------------------------ held, noted


def test_a_note_keeps_the_end_of_a_long_message() -> None:
    rig = starting()
    done = rig.see(FactKind.POD_UNSTARTABLE, node=1, code="ErrImagePull", message="x" * 2000 + "end")
    assert rig.state.problem == "x" * 1021 + "end"
    assert done == (do.Announce(EventReason.POD_UNSTARTABLE, rig.state.problem),)


@pytest.mark.parametrize(
    ("kind", "action"),
    [(FactKind.MEMORY_FAULT, Action.IN_PLACE), (FactKind.POD_LOST, Action.REPLACE), (FactKind.HANG, Action.IN_PLACE)],
)
def test_joining_a_held_incident_never_shrinks_its_action(kind: FactKind, action: Action) -> None:
    rig = Rig.running(policy=Policy(mode=Mode.HOLD))
    rig.exits(5)
    rig.see(kind, ranks=(3,), source=Source.MINDIO)
    assert (rig.action, rig.state.phase) == (action, JobPhase.HELD)


@pytest.mark.parametrize("first", [FactKind.DATA_CORRUPTED, FactKind.PROCESS_EXITED])
def test_corruption_while_held_still_counts_once_released(first: FactKind) -> None:
    """Once data are reported corrupted no copy is taken and nothing is saved, whenever somebody lets it go on."""
    rig = Rig.running(policy=Policy(mode=Mode.HOLD))
    rig.see(first, ranks=(5,), source=Source.MINDIO)
    if first is FactKind.PROCESS_EXITED:
        rig.see(FactKind.DATA_CORRUPTED, ranks=(5,), source=Source.MINDIO)
    assert rig.incident.corrupted
    rig.policy = without(Action.RETRY, Action.IN_PLACE, Action.REPLACE, Action.SHRINK)
    rig.tell(e.PolicyChanged())
    assert rig.at(JobPhase.RESTARTING)
    assert rig.refused[Action.CHECKPOINT] == ("DataSound",)
    assert rig.incident.restored_from is RestoredFrom.PERIODIC_CHECKPOINT


def test_a_held_incident_is_the_machines_as_soon_as_one_fact_is() -> None:
    rig = Rig.running(policy=Policy(mode=Mode.HOLD))
    rig.exits(5, exit_code=1, step=3)
    assert (rig.incident.origin, rig.incident.cause.step) == ("Program", 3)
    rig.silent(1)
    assert rig.incident.origin == "Infrastructure"


# ------------------------------------------------------------------------------------------------ the coordinator


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (e.CoordinatorLost(message="pod evicted"), "pod evicted"),
        (e.CoordinatorLost(), "the MindIO controller is lost"),
    ],
)
def test_why_a_job_trains_unprotected(event: e.JobEvent, words: str) -> None:
    rig = Rig.running()
    assert do.Announce(EventReason.COORDINATOR_LOST, words) in rig.tell(event)


def test_the_last_words_of_a_controller_are_told() -> None:
    rig = Rig.running()
    done = rig.see(FactKind.CONTROLLER_LOST, message="exit code 9: killed")
    assert do.Announce(EventReason.COORDINATOR_LOST, "exit code 9: killed") in done
    rig = Rig.running()
    assert do.Announce(EventReason.COORDINATOR_LOST, "x" * 1024) in rig.see(
        FactKind.CONTROLLER_LOST, message="x" * 5000
    )
    rig = Rig.running(policy=Policy(coordinator_loss=CoordinatorLossPolicy.IMMEDIATELY))
    rig.lose_for_good("exit code 9: killed")
    assert (rig.incident.cause.code, rig.incident.cause.message) == ("NoSuccessor", "exit code 9: killed")


@pytest.mark.parametrize("words", ["evicted", ""])
def test_a_coordinator_unreachable_or_ended_again_says_why(words: str) -> None:
    rig = Rig.running()
    assert rig.out_of_reach()[0] == do.Announce(
        EventReason.COORDINATOR_UNREACHABLE, "the operator cannot reach the coordinator"
    )
    rig.tell(e.CoordinatorLost())
    assert rig.at(JobPhase.UNPROTECTED)
    done = rig.tell(e.CoordinatorLost(message=words))
    assert done[0] == do.Announce(EventReason.COORDINATOR_LOST, words or "the coordinator pod has ended")


def test_a_controller_lost_before_step_one_restarts_the_job() -> None:
    rig = starting()
    for uses in (0, 1, 2):
        rig.tell(e.CoordinatorLost(message="gone"))
        assert rig.at(JobPhase.RESTARTING)
        assert rig.state.spent == tuple(Spend("Maintenance", rig.now - 10 * late) for late in range(uses, -1, -1))
        cause = rig.incident.cause
        assert (rig.incident.number, cause.code, cause.message, cause.step) == (2, "CoordinatorLost", "gone", -1)
    assert rig.orders()[-1].command is OrderCommand.START


def test_a_restart_that_is_asked_for_needs_no_budget() -> None:
    rig = Rig.running(policy=without(Action.RESTART))
    rig.tell(e.RestartRequested())
    assert rig.at(JobPhase.SAVING)
    rig.deadline("Recovery")
    assert rig.at(JobPhase.RESTARTING)
    assert not rig.state.spent


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.HOLD])
def test_a_save_that_no_restart_may_follow_is_held(mode: Mode) -> None:
    rig = Rig.running(policy=without(Action.IN_PLACE, Action.REPLACE, Action.SHRINK))
    rig.exits(5)
    assert rig.at(JobPhase.SAVING)
    forbids = replace(without(Action.RESTART), mode=mode)
    rig.policy = forbids
    rig.tell(e.ResultReported(rig.incident.incarnation, 0, "", "dump"))
    assert rig.at(JobPhase.HELD)
    rig.policy = replace(forbids, mode=Mode.ENFORCE)
    rig.tell(e.PolicyChanged())
    assert rig.at(JobPhase.FAILED)


def test_a_start_is_above_what_the_coordinator_has_numbered() -> None:
    rig = starting(JobPhase.STARTING)
    rig.exits(5)
    assert rig.state.base == rig.state.incarnation == 3
    rig.facts += 1
    again = replace(rig.last_fact, id="again", incarnation=4)
    rig.tell(e.FactSeen(4, again))
    assert rig.state.base == 5
