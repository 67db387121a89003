"""The same rank at the same step once more: the program's failure, unless the machine explains it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hajob.domain.actions import Action
from hajob.domain.facts import FactKind, Origin, Source
from hajob.plan import effects as do
from hajob.plan import events as e
from hajob.plan.policy import Policy
from hajob.plan.state import JobPhase
from tests.rigs.plan_rig import Rig, from_dict, to_dict
from tests.rigs.plan_worlds import VIEW

LINE = "found by MindIO: FileNotFoundError: [Errno 2] No such file or directory: '/data/corpus.bin'"
RAISED: dict[str, Any] = {"source": Source.MINDIO, "message": LINE}
KILLED: dict[str, Any] = {"exit_code": -9, "code": "SIGKILL"}


def raises(rig: Rig, rank: int = 2, **more: Any) -> None:
    """MindIO reports a fault of a rank that has printed an exception."""
    rig.see(FactKind.PROCESS_FAULT, ranks=(rank,), **{**RAISED, **more})


def killed(rig: Rig, rank: int = 2, **more: Any) -> None:
    """A rank's process is killed by a signal that nobody of Hajob has sent."""
    rig.see(FactKind.PROCESS_EXITED, ranks=(rank,), **{**KILLED, **more})


def restarted(rig: Rig, *, checkpoint: int = 5) -> None:
    """MindIO gives up, the step is saved, and every rank of the next attempt is linked; none has trained."""
    if rig.at(JobPhase.GATHERING):
        rig.tell(e.ResultReported(rig.incident.incarnation, 406, "do last repair failed!", "recover"))
    if rig.at(JobPhase.SAVING):
        rig.tell(e.ResultReported(rig.incident.incarnation, 0, "do dump success", "dump"))
    assert rig.at(JobPhase.RESTARTING)
    rig.view = replace(rig.view, step=-1, checkpoint_step=checkpoint)
    rig.tell(e.PodsReady())
    rig.tell(e.AllRanksStarted())
    assert rig.at(JobPhase.WARMING)


def trains_to(rig: Rig, step: int) -> None:
    """The attempt trains, up to and with this step."""
    rig.tell(e.Resumed(step=rig.view.checkpoint_step or 0))
    rig.view = replace(rig.view, step=step)
    assert rig.at(JobPhase.RUNNING)


def moved(rig: Rig, node_rank: int, name: str) -> None:
    """The pods of a node rank have another node now."""
    rig.view = replace(rig.view, node_names={**rig.view.node_names, node_rank: name})


def budget(rig: Rig) -> int:
    """Failures that the program's budget has paid for."""
    return sum(spend.budget == "Program" for spend in rig.state.spent)


def test_an_exception_at_the_same_step_is_the_programs() -> None:
    rig = Rig.running()
    raises(rig)
    assert (rig.incident.origin, budget(rig)) == (Origin.INFRASTRUCTURE, 0)
    restarted(rig)
    raises(rig)
    assert (rig.incident.origin, budget(rig), rig.state.restarts_program) == (Origin.PROGRAM, 1, 1)


def test_a_program_that_fails_at_each_try_is_given_up() -> None:
    rig = Rig.running()
    raises(rig)
    while not rig.at(JobPhase.FAILED):
        restarted(rig)
        raises(rig)
    (*_, failed) = rig.transition.effects if rig.transition else ()
    assert isinstance(failed, do.FailJob)
    assert failed.reason == "NoProgress"
    assert (rig.state.restarts_infrastructure, rig.state.restarts_program) == (1, 2)


def test_kills_at_each_try_are_given_up() -> None:
    rig = Rig.running()
    killed(rig)
    while not rig.at(JobPhase.FAILED):
        restarted(rig)
        killed(rig)
    assert rig.state.restarts_infrastructure + rig.state.restarts_program <= 4


def test_a_kill_after_training_to_the_same_step_is_the_programs() -> None:
    rig = Rig.running()
    killed(rig, step=5)
    restarted(rig, checkpoint=3)
    trains_to(rig, 5)
    killed(rig, step=5)
    assert (rig.incident.origin, budget(rig)) == (Origin.PROGRAM, 1)


def test_a_kill_on_another_node_is_the_programs() -> None:
    rig = Rig.running()
    killed(rig)
    restarted(rig)
    moved(rig, 1, "node-7")
    killed(rig)
    assert (rig.incident.origin, budget(rig)) == (Origin.PROGRAM, 1)


def test_a_kill_before_the_first_step_may_be_the_nodes() -> None:
    """A broken node kills whatever is started there, and every start stands at the same step."""
    rig = Rig.running()
    killed(rig)
    restarted(rig)
    killed(rig)
    assert (rig.incident.origin, budget(rig)) == (Origin.INFRASTRUCTURE, 0)
    restarted(rig)
    killed(rig)
    assert (rig.incident.origin, budget(rig)) == (Origin.PROGRAM, 1)


@pytest.mark.parametrize("first", [True, False])
def test_a_chips_fault_explains_it(first: bool) -> None:
    """Whichever is told first, the chip's fault or the death of the process."""
    limits = {**Policy().limits, Action.SHRINK: replace(Policy().limits[Action.SHRINK], max_count=0)}
    rig = Rig.running(policy=Policy(limits=limits))
    for _ in range(4):
        if first:
            rig.see(FactKind.CHIP_FAULT, ranks=(2,), source=Source.DEVICE, code="40F84E00")
        killed(rig)
        if not first:
            rig.see(FactKind.CHIP_FAULT, ranks=(2,), source=Source.DEVICE, code="40F84E00")
        if not rig.at(JobPhase.RESTARTING):
            rig.deadline("Recovery")
        restarted(rig)
    assert (rig.incident.origin, budget(rig)) == (Origin.INFRASTRUCTURE, 0)


@pytest.mark.parametrize("line", ["RuntimeError: UCE ERROR", "RuntimeError: HCCL error, error code is EI0002", ""])
def test_words_of_the_device_are_not_the_programs(line: str) -> None:
    rig = Rig.running()
    for _ in range(2):
        raises(rig, message=f"found by MindIO: {line}", unexplained=not line)
        restarted(rig)
    assert (rig.incident.origin, budget(rig)) == (Origin.INFRASTRUCTURE, 0)


def test_an_exception_of_every_rank_is_the_programs() -> None:
    """Which of them MindIO hears first is chance."""
    rig = Rig.running()
    raises(rig)
    raises(rig, 3)
    assert (rig.incident.origin, budget(rig)) == (Origin.INFRASTRUCTURE, 0), "one incident, of which two ranks tell"
    restarted(rig)
    raises(rig, 5)
    assert (rig.incident.origin, budget(rig)) == (Origin.PROGRAM, 1)


def test_a_kill_of_another_rank_is_another_failure() -> None:
    rig = Rig.running()
    raises(rig)
    restarted(rig)
    trains_to(rig, 5)
    killed(rig, 3)
    assert (rig.incident.origin, budget(rig)) == (Origin.INFRASTRUCTURE, 0)


@pytest.mark.parametrize(("rank", "step"), [(3, 9), (2, 9)])
def test_another_step_is_another_failure(rank: int, step: int) -> None:
    rig = Rig.running()
    raises(rig)
    restarted(rig)
    trains_to(rig, step)
    raises(rig, rank)
    assert (rig.incident.origin, budget(rig)) == (Origin.INFRASTRUCTURE, 0)


def test_a_step_told_a_moment_late_is_the_same() -> None:
    rig = Rig.running()
    raises(rig)
    restarted(rig, checkpoint=3)
    trains_to(rig, 6)
    raises(rig)
    assert rig.incident.origin is Origin.PROGRAM


def test_what_two_observers_tell_of_one_process_counts_once() -> None:
    policy = Policy(limits={**Policy().limits, Action.IN_PLACE: replace(Policy().limits[Action.IN_PLACE], max_count=0)})
    rig = Rig.running(view=replace(VIEW, free_nodes=0), policy=policy)
    raises(rig)
    killed(rig)
    assert budget(rig) == 0


def test_ranks_that_die_with_the_program_change_nothing() -> None:
    rig = Rig.running()
    raises(rig)
    restarted(rig)
    raises(rig)
    killed(rig, 3)
    assert rig.incident.origin is Origin.PROGRAM


def test_another_operator_remembers_the_first_time() -> None:
    rig = Rig.running()
    raises(rig)
    restarted(rig)
    rig.state = from_dict(to_dict(rig.state))
    raises(rig)
    assert rig.incident.origin is Origin.PROGRAM


def test_a_revived_job_begins_to_count_anew() -> None:
    rig = Rig.running(policy=Policy(max_program_failures=0))
    raises(rig)
    restarted(rig)
    raises(rig)
    assert rig.at(JobPhase.FAILED)
    rig.tell(e.RestartRequested())
    assert rig.state.failures == ()


def test_what_is_remembered_stays_small() -> None:
    rig = Rig.running()
    for step in range(200):
        rig.now += 10_000_000
        rig.view = replace(rig.view, step=10 * step)
        raises(rig, step % 8)
        rig.recover()
    assert len(to_dict(rig.state)["failures"]) <= 8
