"""A load that fails is remembered: the second time an older checkpoint is given, and after that at once the next."""

from __future__ import annotations

from dataclasses import replace

from hajob.domain.facts import FactKind
from hajob.domain.incidents import RestoredFrom
from hajob.plan import events as e
from hajob.plan.policy import Mode, Policy
from hajob.plan.state import JobPhase, JobState
from tests.rigs.plan_rig import Rig


def starting(loads: int = 166) -> Rig:
    """A job that trained, and whose newest start was given a checkpoint to load."""
    rig = Rig.running(policy=Policy(max_program_failures=9), step=170)
    rig.tell(e.RestartRequested())
    if not rig.at(JobPhase.RESTARTING):
        rig.tell(e.ResultReported(rig.incident.incarnation, 0, "", "dump"))
    assert rig.at(JobPhase.RESTARTING)
    rig.view = replace(rig.view, loaded_step=loads)
    return rig


def fails_to_load(rig: Rig, step: int) -> None:
    """The start fails with this checkpoint."""
    rig.view = replace(rig.view, loaded_step=step)
    rig.exits(3, exit_code=1, message="KeyError: 'w'", load_failed=True)
    assert rig.at(JobPhase.RESTARTING)


def test_the_second_failed_load_passes_the_checkpoint_over() -> None:
    rig, passed_over = starting(), []
    for step in (166, 166, 160):
        fails_to_load(rig, step)
        passed_over.append(rig.state.passed_over)
    assert passed_over == [(), (166,), (160, 166)], "the first time it may have been the node"


def test_a_load_that_fails_while_nothing_may_be_done_counts() -> None:
    rig = starting()
    fails_to_load(rig, 166)
    rig.policy = replace(rig.policy, mode=Mode.OBSERVE)
    rig.exits(3, exit_code=1, message="KeyError: 'w'", load_failed=True)
    rig.exits(2, exit_code=1, message="KeyError: 'w'", load_failed=True)
    assert rig.at(JobPhase.HELD)
    rig.policy = replace(rig.policy, mode=Mode.ENFORCE)
    rig.tell(e.PolicyChanged())
    assert rig.at(JobPhase.RESTARTING)
    assert rig.state.failed_loads == (166, 166)


def test_another_failure_says_nothing_about_the_checkpoint() -> None:
    rig = starting()
    for _ in range(3):
        rig.exits(3, exit_code=1, message="HCCL timeout")
    assert rig.state.failed_loads == ()


def test_a_step_forgets_them() -> None:
    rig = starting()
    fails_to_load(rig, 166)
    fails_to_load(rig, 166)
    rig.tell(e.PodsReady())
    rig.tell(e.Resumed(step=161))
    assert rig.at(JobPhase.RUNNING)
    assert rig.state.failed_loads == ()


def test_a_job_that_never_trained_restores_nothing() -> None:
    rig = Rig(JobState())
    rig.view = replace(rig.view, step=-1, checkpoint_step=-1)
    rig.tell(e.Accepted())
    rig.see(FactKind.SCRIPT_ENDED, node=0, message="bash: trian.sh: No such file or directory")
    assert rig.at(JobPhase.RESTARTING)
    assert rig.incident.restored_from is None
    rig = starting()
    fails_to_load(rig, 166)
    assert rig.incident.restored_from is not None
    assert rig.incident.restored_from in {RestoredFrom.PERIODIC_CHECKPOINT, RestoredFrom.SAVED_CHECKPOINT}
