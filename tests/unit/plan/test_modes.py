"""recovery.mode Observe and Hold: a fault is kept open in every state, nothing is started, Enforce decides at once.

That no cell of the table starts anything is in test_invariants.py, which walks all states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from hajob.domain.actions import Action, OrderCommand
from hajob.domain.facts import FactKind, Source
from hajob.domain.goodput import Bucket
from hajob.domain.incidents import IncidentOutcome
from hajob.plan import events as e
from hajob.plan.account import bucket_of
from hajob.plan.effects import Announce, CloseIncident
from hajob.plan.placements import same_placements
from hajob.plan.policy import CoordinatorLossPolicy, Mode, Policy
from hajob.plan.state import Deadline, JobPhase
from hajob.sources import observe
from tests.rigs.plan_moments import confirming, expanding, gathering, migrating, pausing, shrinking, starting
from tests.rigs.plan_rig import Rig
from tests.rigs.plan_worlds import LAYOUT, VIEW

MODES: Final = pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.HOLD])


def waiting() -> Rig:
    """A new job whose pods are being made."""
    return starting()


def warming() -> Rig:
    """Every rank is linked, no step has ended."""
    rig = waiting()
    rig.tell(e.PodsReady())
    rig.tell(e.AllRanksStarted())
    return rig


def restarting() -> Rig:
    """A job that is started anew because of a fault."""
    rig = Rig.running()
    rig.lose_for_good()
    rig.tell(e.RestartRequested())
    return rig


def unprotected() -> Rig:
    """A job without a controller, and none can come."""
    rig = Rig.running()
    rig.lose_for_good()
    rig.view = replace(VIEW, coordinator_ready=False)
    return rig


def resuming() -> Rig:
    """MindIO has been told of the lost rank."""
    return Rig.naming()


def paused() -> Rig:
    """Every rank waits at the end of a step."""
    rig = pausing()
    rig.tell(e.Stopped(rig.incident.incarnation))
    return rig


RIGS: Final[dict[JobPhase, Callable[[], Rig]]] = {
    JobPhase.PENDING: waiting,
    JobPhase.WARMING: warming,
    JobPhase.RESTARTING: restarting,
    JobPhase.RUNNING: Rig.running,
    JobPhase.UNPROTECTED: unprotected,
    JobPhase.GATHERING: gathering,
    JobPhase.RESUMING: resuming,
    JobPhase.CONFIRMING: confirming,
    JobPhase.SHRINKING: shrinking,
    JobPhase.SHRUNK: Rig.shrunk,
    JobPhase.EXPANDING: expanding,
    JobPhase.MIGRATING: migrating,
    JobPhase.PAUSED: paused,
}
SECOND_PODS: Final = frozenset({JobPhase.EXPANDING, JobPhase.MIGRATING})
"""What was made beside the training is given up."""
RESTARTS: Final = frozenset({JobPhase.PENDING, JobPhase.WARMING, JobPhase.RESTARTING, JobPhase.UNPROTECTED})


@MODES
@pytest.mark.parametrize("phase", RIGS)
def test_a_lost_pod_is_held_and_decided_later(phase: JobPhase, mode: Mode) -> None:
    rig = RIGS[phase]()
    assert rig.at(phase)
    rig.policy = replace(rig.policy, mode=mode)
    before = rig.state
    pod = rig.state.pod_incarnation(1)
    rig.see(FactKind.POD_LOST, node=1, code="PodDeleted", incarnation=pod, source=Source.POD, node_name="node-1")
    assert rig.at(JobPhase.HELD)
    assert rig.last_fact.id in rig.incident.fact_ids
    assert set(rig.incident.lost_ranks) >= {2, 3}
    assert bucket_of(rig.state) is Bucket.DECISION
    if phase not in SECOND_PODS:
        assert same_placements(before, rig.state, LAYOUT.num_nodes)
    assert all(order.command in {OrderCommand.CONTINUE, OrderCommand.SHRINK} for order in rig.orders())
    assert not rig.state.deadlines.keys() & {Deadline.RECOVERY, Deadline.STARTUP, Deadline.EXPAND}
    held = rig.state
    rig.tell(e.PolicyChanged())
    assert rig.state is held
    rig.policy = replace(rig.policy, mode=Mode.ENFORCE)
    done = rig.tell(e.PolicyChanged())
    assert rig.orders(done)
    assert rig.state.held_from is None
    if phase in RESTARTS:
        assert rig.at(JobPhase.RESTARTING)
    elif phase in {JobPhase.SHRUNK, JobPhase.EXPANDING, JobPhase.SHRINKING, JobPhase.RESUMING}:
        assert rig.at(JobPhase.SAVING), "MindIO offers only to save"
    else:
        assert rig.at(JobPhase.GATHERING)
        assert 1 in rig.incident.replaced_nodes
        assert not same_placements(before, rig.state, LAYOUT.num_nodes)


@MODES
def test_an_action_under_way_is_carried_to_its_end(mode: Mode) -> None:
    rig = gathering()
    rig.policy = replace(rig.policy, mode=mode)
    rig.tell(e.PolicyChanged())
    rig.recover()
    assert rig.at(JobPhase.RUNNING)


@MODES
def test_what_would_follow_a_failed_action_is_held(mode: Mode) -> None:
    rig = gathering()
    number = rig.incident.number
    rig.policy = replace(rig.policy, mode=mode)
    rig.deadline("Recovery")
    assert (rig.state.phase, rig.incident.number) == (JobPhase.HELD, number)
    rig.policy = Policy()
    rig.tell(e.PolicyChanged())
    assert (rig.state.phase, rig.action, rig.incident.number) == (JobPhase.GATHERING, Action.IN_PLACE, number)
    assert rig.order().incarnation > number, "processes of the attempt before are none of this one"


@MODES
def test_after_499_only_a_start_can_follow(mode: Mode) -> None:
    rig = resuming()
    rig.policy = replace(rig.policy, mode=mode)
    rig.tell(e.ResultReported(rig.incident.incarnation, 499, "MindIO leaves"))
    assert rig.at(JobPhase.HELD)
    rig.policy = Policy()
    rig.tell(e.PolicyChanged())
    assert rig.at(JobPhase.RESTARTING)


@MODES
def test_a_training_that_goes_on_is_not_said_to_stand(mode: Mode) -> None:
    rig = Rig.running(policy=Policy(mode=mode, log_rules={"nan": Action.RESTART}))
    rig.see(FactKind.LOG_RULE, ranks=(5,), code="nan")
    assert rig.at(JobPhase.HELD)
    assert (rig.state.going_on, bucket_of(rig.state)) == (JobPhase.RUNNING, Bucket.TRAINING)
    rig.exits(5)
    assert (rig.state.going_on, bucket_of(rig.state)) == (JobPhase.HELD, Bucket.DECISION)


@MODES
def test_a_start_that_goes_on_may_come_to_train(mode: Mode) -> None:
    rig = warming()
    rig.policy = replace(rig.policy, mode=mode)
    rig.see(FactKind.CHIP_FAULT, node=1, incarnation=-1, source=Source.DEVICE)
    assert (rig.state.phase, rig.state.going_on) == (JobPhase.HELD, JobPhase.WARMING)
    rig.tell(e.Resumed(rig.state.base, 1))
    assert (rig.state.phase, rig.state.going_on) == (JobPhase.HELD, JobPhase.RUNNING)
    rig.policy = Policy()
    rig.tell(e.PolicyChanged())
    assert (rig.state.phase, rig.action) == (JobPhase.GATHERING, Action.REPLACE)


@MODES
def test_a_start_goes_on_when_its_fault_is_withdrawn(mode: Mode) -> None:
    rig = warming()
    rig.policy = replace(rig.policy, mode=mode)
    rig.see(FactKind.CHIP_FAULT, node=1, incarnation=-1, source=Source.DEVICE)
    rig.tell(e.FactsWithdrawn(ids=rig.incident.fact_ids))
    assert rig.at(JobPhase.PENDING)
    assert Deadline.STARTUP in rig.state.deadlines
    for event in (e.PodsReady(), e.AllRanksStarted(), e.Resumed(step=1)):
        rig.tell(event)
    assert rig.at(JobPhase.RUNNING)


@MODES
def test_what_was_acted_upon_is_not_withdrawn(mode: Mode) -> None:
    rig = Rig.running()
    rig.see(FactKind.CHIP_FAULT, node=1, incarnation=-1, source=Source.DEVICE)
    rig.policy = replace(rig.policy, mode=mode)
    rig.deadline("Recovery")
    rig.tell(e.FactsWithdrawn(ids=rig.incident.fact_ids))
    assert rig.at(JobPhase.HELD)


def test_a_hang_that_is_over_is_withdrawn() -> None:
    rig = Rig.running(policy=Policy(mode=Mode.OBSERVE))
    rig.see(FactKind.HANG, ranks=tuple(range(8)), source=Source.COORDINATOR, step=5)
    assert rig.at(JobPhase.HELD)
    assert list(observe.events_of_steps(rig.state, 5)) == []
    (over,) = observe.events_of_steps(rig.state, 6)
    assert CloseIncident(2, IncidentOutcome.RECOVERED, "its faults are gone; no action was taken") in rig.tell(over)
    assert rig.at(JobPhase.RUNNING)


@MODES
def test_a_person_may_suspend_and_save_what_is_held(mode: Mode) -> None:
    rig = Rig.running(policy=Policy(mode=mode))
    rig.exits(5)
    rig.tell(e.SuspendRequested())
    assert (rig.state.phase, rig.order().command) == (JobPhase.SAVING, OrderCommand.CHECKPOINT)
    rig.tell(e.ResultReported(rig.incident.incarnation, 0, "", "dump"))
    assert rig.at(JobPhase.SUSPENDED)


@MODES
@pytest.mark.parametrize("code", [0, 499])
def test_a_person_may_restart(mode: Mode, code: int) -> None:
    rig = Rig.running(policy=Policy(mode=mode))
    rig.exits(5)
    rig.tell(e.RestartRequested())
    assert rig.at(JobPhase.SAVING)
    rig.tell(e.ResultReported(rig.incident.incarnation, code, "", "dump"))
    assert rig.at(JobPhase.RESTARTING)


@MODES
def test_a_lost_coordinator_is_made_again(mode: Mode) -> None:
    rig = Rig.running(policy=Policy(mode=mode, coordinator_loss=CoordinatorLossPolicy.IMMEDIATELY))
    rig.lose_for_good()
    assert (rig.state.phase, rig.served) == (JobPhase.UNPROTECTED, dict.fromkeys(range(4), 1))
    rig.tell(e.CheckpointVerified(step=9))
    assert rig.at(JobPhase.UNPROTECTED)
    rig.policy = replace(rig.policy, mode=Mode.ENFORCE)
    rig.tell(e.PolicyChanged())
    assert rig.at(JobPhase.RESTARTING)


@MODES
def test_a_coordinator_lost_while_a_fault_is_held(mode: Mode) -> None:
    rig = Rig.running(policy=Policy(mode=mode))
    rig.exits(5)
    rig.tell(e.CoordinatorLost())
    coordinator = rig.state.coordinator
    rig.tell(e.CoordinatorLost(program=True))
    rig.view = replace(VIEW, coordinator_ready=False)
    rig.deadline("Coordinator")
    assert rig.at(JobPhase.HELD)
    assert rig.state.coordinator > coordinator > 1
    assert rig.served == dict.fromkeys(range(4), 1)


@MODES
def test_a_shrunk_job_does_not_grow(mode: Mode) -> None:
    rig = Rig.shrunk()
    rig.policy, rig.view = replace(rig.policy, mode=mode), VIEW
    rig.grow()
    assert rig.at(JobPhase.SHRUNK)
    rig.policy = Policy()
    rig.deadline("Expand")
    rig.deadline("Expand")
    assert rig.at(JobPhase.EXPANDING)


def test_a_program_failure_that_was_held_is_the_programs() -> None:
    rig = Rig.running(policy=Policy(mode=Mode.HOLD, max_program_failures=0))
    rig.exits(5, exit_code=1)
    rig.policy = Policy(max_program_failures=0)
    rig.tell(e.PolicyChanged())
    assert rig.at(JobPhase.FAILED)


def test_each_fact_says_what_would_be_done() -> None:
    rig = Rig.running(policy=Policy(mode=Mode.OBSERVE))
    (first,) = rig.exits(5)
    (second,) = rig.silent(1)
    assert isinstance(first, Announce)
    assert isinstance(second, Announce)
    assert first.message == f"would take InPlace for fact {rig.incident.fact_ids[0]} (ProcessExited)"
    assert second.message == f"would take Replace for fact {rig.incident.fact_ids[1]} (AgentSilent)"
