"""The end of a training is a state: what each event means once the last step has ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.domain.facts import FactKind
from hajob.domain.incidents import IncidentOutcome
from hajob.plan import effects as do
from hajob.plan import events as e
from hajob.plan.policy import FINAL_LOOK_SECONDS, Mode, Policy
from hajob.plan.state import JobPhase
from tests.rigs.plan_rig import Rig, from_dict, to_dict

SICK = [FactKind.SUB_HEALTH, FactKind.CORDONED, FactKind.CHIP_FAULT, FactKind.CHIP_ERROR]
INSIDE = [FactKind.LOG_RULE, FactKind.HANG, FactKind.MEMORY_FAULT, FactKind.HEARTBEAT_SILENT, FactKind.PORT_TAKEN]
LOSSES = [FactKind.POD_LOST, FactKind.POD_FAILED, FactKind.AGENT_SILENT, FactKind.SCRIPT_ENDED]


def ending(*, saved: bool = False, nodes: tuple[int, ...] = (), policy: Policy | None = None) -> Rig:
    """A job whose last step has ended."""
    rig = Rig.running(policy=policy)
    rig.tell(e.LastStepEnded(saved=saved, nodes=nodes))
    assert rig.at(JobPhase.ENDING)
    return rig


@pytest.mark.parametrize("kind", SICK + INSIDE)
@pytest.mark.parametrize("saved", [False, True])
def test_what_ends_no_process_changes_nothing(kind: FactKind, *, saved: bool) -> None:
    rig = ending(saved=saved)
    rig.see(kind, node=1, ranks=(2,))
    assert rig.at(JobPhase.ENDING)
    assert rig.state.incident is None
    assert rig.ignored.startswith("Ending")


def test_a_lost_controller_is_nobody_s_loss() -> None:
    rig = ending()
    rig.lose_for_good()
    assert rig.at(JobPhase.ENDING)


@pytest.mark.parametrize("kind", LOSSES)
def test_a_pod_whose_ranks_have_finished_may_go(kind: FactKind) -> None:
    rig = ending(nodes=(1,))
    rig.see(kind, node=1)
    assert rig.at(JobPhase.ENDING)
    assert rig.state.incident is None
    rig.tell(e.AllFinished())
    assert rig.at(JobPhase.COMPLETE)


@pytest.mark.parametrize("kind", [*LOSSES, FactKind.PROCESS_EXITED])
def test_nothing_is_lost_once_the_final_checkpoint_is_complete(kind: FactKind) -> None:
    rig = ending(saved=True)
    rig.see(kind, node=1, ranks=(2,), exit_code=-11)
    assert (rig.state.phase, rig.state.incident) == (JobPhase.ENDING, None)
    rig.tell(e.PodsFinished())
    assert rig.at(JobPhase.COMPLETE)


@pytest.mark.parametrize("kind", [*LOSSES, FactKind.PROCESS_EXITED])
def test_a_loss_waits_for_a_look_at_the_final_checkpoint(kind: FactKind) -> None:
    """Ranks that die in a destructor are told of before their save is."""
    rig = ending()
    rig.see(kind, node=1, ranks=(2,), exit_code=-11)
    assert rig.at(JobPhase.ENDING)
    (*_, closed) = rig.tell(e.LastStepEnded(saved=True))
    assert closed == do.CloseIncident(
        rig.last_incident.number,
        IncidentOutcome.RECOVERED,
        "the final checkpoint is complete; nothing is left to train",
    )
    assert "Recovery" not in rig.state.deadlines
    rig.tell(e.AllFinished(nodes=(0,)))
    assert rig.at(JobPhase.COMPLETE)
    assert rig.state.ending is not None
    assert rig.state.ending.over == (0,)
    assert (rig.state.restarts_program, rig.state.restarts_infrastructure) == (0, 0)


def test_a_loss_without_a_final_checkpoint_restarts_the_job() -> None:
    rig = ending()
    rig.exits(5, exit_code=-11, message="SIGSEGV")
    rig.exits(6, exit_code=-11)
    assert rig.state.deadlines["Recovery"] <= rig.now + 1000 * FINAL_LOOK_SECONDS, "a second loss does not delay it"
    rig.deadline("Recovery")
    assert rig.at(JobPhase.RESTARTING)
    assert rig.incident.cause.message == "SIGSEGV"
    assert rig.incident.escalated_from == (), "no smaller action was tried"
    assert rig.state.ending is None
    assert [spend.budget for spend in rig.state.spent] == ["Restart"]


def test_the_same_loss_at_the_end_again_and_again_fails() -> None:
    rig = ending()
    for _ in range(10):
        rig.exits(5, exit_code=-9, step=40)
        rig.deadline("Recovery")
        if rig.at(JobPhase.FAILED):
            break
        rig.tell(e.LastStepEnded())
        assert rig.at(JobPhase.ENDING)
    assert rig.at(JobPhase.FAILED)
    assert any(isinstance(effect, do.FailJob) and effect.reason == "NoProgress" for effect in rig.transition.effects)  # type: ignore[union-attr]


def test_a_policy_that_forbids_to_act_holds_the_loss() -> None:
    rig = ending(policy=Policy(mode=Mode.HOLD))
    rig.exits(5)
    rig.deadline("Recovery")
    assert rig.at(JobPhase.ENDING)
    rig.policy = replace(rig.policy, mode=Mode.ENFORCE)
    rig.deadline("Recovery")
    assert rig.at(JobPhase.RESTARTING)


def test_ranks_that_never_end_are_not_waited_for() -> None:
    rig = ending(saved=True, nodes=(0,))
    rig.deadline("Finish")
    assert rig.at(JobPhase.COMPLETE)
    rig = ending(nodes=(0,))
    assert rig.state.deadlines["Finish"] == rig.now + 1000 * rig.policy.finish_timeout_seconds
    rig.deadline("Finish")
    assert rig.at(JobPhase.ENDING)
    assert "ranks of node ranks [1, 2, 3] have not ended 1800 s" in rig.incident.cause.message
    rig.deadline("Recovery")
    assert rig.at(JobPhase.RESTARTING)
    assert [spend.budget for spend in rig.state.spent] == ["Restart"]


def test_the_deadline_follows_its_setting() -> None:
    rig = ending()
    since, rig.policy = rig.now, replace(rig.policy, finish_timeout_seconds=9)
    rig.tell(e.PolicyChanged())
    assert rig.state.deadlines["Finish"] == since + 9000


@pytest.mark.parametrize("begin", [e.MigrateRequested(nodes=(1,)), e.PauseRequested(request="now", seconds=60)])
def test_a_planned_action_ends_with_the_training(begin: e.JobEvent) -> None:
    rig = Rig.running(view=replace(Rig.running().view, step=5))
    rig.tell(begin)
    assert not rig.at(JobPhase.RUNNING)
    rig.tell(e.LastStepEnded())
    assert (rig.state.phase, rig.state.incident) == (JobPhase.ENDING, None)
    rig.tell(begin)
    assert (rig.state.phase, rig.state.incident) == (JobPhase.ENDING, None)


def test_a_recovery_goes_on_until_the_final_checkpoint_is_there() -> None:
    rig = Rig.running()
    rig.exits(5)
    rig.tell(e.LastStepEnded())
    assert rig.at(JobPhase.GATHERING)
    rig.tell(e.LastStepEnded(saved=True))
    assert (rig.state.phase, rig.state.incident) == (JobPhase.ENDING, None)


def test_a_suspend_waits_for_the_end_and_a_restart_does_not() -> None:
    rig = ending()
    rig.tell(e.SuspendRequested())
    assert rig.at(JobPhase.ENDING)
    rig.tell(e.RestartRequested())
    assert rig.at(JobPhase.RESTARTING)
    assert rig.state.spent == ()


def test_the_time_of_the_job_ends_a_job_that_is_not_saved() -> None:
    for saved, phase in ((False, JobPhase.FAILED), (True, JobPhase.COMPLETE)):
        rig = ending(saved=saved, policy=Policy(active_deadline_seconds=3600))
        rig.deadline("Active")
        assert rig.at(phase)


def test_a_lost_coordinator_gets_one_that_tells_who_ends() -> None:
    rig = ending()
    before = rig.state.coordinator
    rig.view = replace(rig.view, coordinator_ready=False)
    rig.tell(e.CoordinatorLost())
    rig.deadline("Coordinator")
    assert rig.at(JobPhase.ENDING)
    assert rig.state.coordinator > before


def test_the_end_survives_the_operator() -> None:
    rig = ending(saved=True, nodes=(1, 2))
    assert from_dict(to_dict(rig.state)) == rig.state
