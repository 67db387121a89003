"""A job for which MindIO can do nothing: a fault restarts it at once, and nothing waits for MindIO."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hajob.api.enums import ConditionStatus
from hajob.domain.actions import MINDIO_ACTIONS, Action
from hajob.plan import events as e
from hajob.plan.effects import Announce
from hajob.plan.policy import WITHOUT_MINDIO, Policy, layout_from_spec, policy_from_spec
from hajob.plan.recoverability import protection_in_words, recoverability
from hajob.plan.state import JobPhase
from tests.rigs.plan_rig import Rig
from tests.rigs.plan_specs import GOOD, spec
from tests.rigs.plan_worlds import VIEW

HIDDEN = None
ALL_OFF = {"actions": [{"name": name, "maxCount": 0} for name in MINDIO_ACTIONS]}
ONLY_SAVES = {"actions": [{"name": name, "maxCount": 0} for name in MINDIO_ACTIONS if name != "Checkpoint"]}
LEFT_OUT: dict[str, dict[str, Any]] = {
    "one node, data parallel 1": spec(HIDDEN, numNodes=1),
    "data parallel 1 on several nodes": spec(HIDDEN, parallelism={"tensor": 8}),
    "an odd data parallel": spec(HIDDEN, numNodes=3),
    "experts without a second rank": spec(HIDDEN, parallelism={"tensor": 2, "expert": 4}),
    "all actions off": spec(HIDDEN, recovery=ALL_OFF),
    "only a save, and no second copy": spec(HIDDEN, recovery=ONLY_SAVES, optimizer={"copies": 1}),
    "MindSpore without copies": spec(HIDDEN, framework="MindSpore", optimizer={"copies": 1}),
    "LoRA": spec(GOOD + " --lora-target-modules q"),
    "a swapped optimizer": spec(GOOD + " --swap-optimizer"),
    "distributed checkpoints": spec(GOOD + " --use-dist-ckpt"),
    "an entry of FSDP2": spec(GOOD, template={"spec": {"containers": [
        {"name": "trainer", "command": ["torchrun", "train_fsdp2.py", *GOOD.split()]}]}}),
}  # fmt: skip
KEPT: dict[str, tuple[dict[str, Any], tuple[Action, ...]]] = {
    "a usual job": (spec(HIDDEN), MINDIO_ACTIONS),
    "one node with two copies": (
        spec(HIDDEN, numNodes=1, parallelism={"tensor": 1}),
        (Action.RETRY, Action.IN_PLACE, Action.CHECKPOINT),
    ),
    "one copy": (spec(HIDDEN, optimizer={"copies": 1}), (Action.RETRY, Action.IN_PLACE, Action.REPLACE)),
    "a framework that refuses to shrink": (
        spec(GOOD + " --reuse-fp32-param"),
        (Action.RETRY, Action.IN_PLACE, Action.REPLACE, Action.CHECKPOINT),
    ),
    "what the arguments only speak against": (spec(GOOD.replace("--bf16", "")), MINDIO_ACTIONS),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_mindio_is_left_out_and_that_is_said(case: str) -> None:
    policy = policy_from_spec(LEFT_OUT[case])
    assert policy.through_mindio == ()
    assert WITHOUT_MINDIO in protection_in_words(policy)


@pytest.mark.parametrize("case", KEPT)
def test_mindio_does_what_it_can(case: str) -> None:
    made, left = KEPT[case]
    assert policy_from_spec(made).through_mindio == left
    assert WITHOUT_MINDIO not in protection_in_words(policy_from_spec(made))


def test_what_was_launched_tells_it_as_well() -> None:
    words = ["pretrain_gpt.py", *GOOD.split(), "--lora-target-modules", "q"]
    assert policy_from_spec(spec(HIDDEN), words).through_mindio == ()


def test_so_does_the_size_of_a_smaller_start() -> None:
    assert policy_from_spec(spec(HIDDEN), nodes=1).through_mindio == ()


def alone(**changes: Any) -> Rig:
    made = spec(HIDDEN, numNodes=1, **changes)
    view = replace(VIEW, layout=layout_from_spec(made), free_nodes=0)
    return Rig.running(view=view, policy=policy_from_spec(made))


def test_only_a_restart_is_evaluated_as_possible() -> None:
    rig = alone()
    evaluated = recoverability(rig.state, rig.view, rig.policy)
    possible = [one.action for one in evaluated if one.status is not ConditionStatus.FALSE]
    assert possible == [Action.RESTART]


def test_a_death_restarts_at_once() -> None:
    rig = alone()
    rig.exits(0)
    assert rig.state.phase is JobPhase.RESTARTING
    assert rig.incident.action is Action.RESTART


def unheard(rig: Rig) -> None:
    rig.view = replace(rig.view, coordinator_ready=False, coordinator_silent=True)


def lost(rig: Rig) -> None:
    rig.view = replace(rig.view, coordinator_ready=False)
    rig.tell(e.CoordinatorLost())
    assert rig.state.phase is JobPhase.UNPROTECTED


@pytest.mark.parametrize("coordinator", [unheard, lost])
def test_nothing_waits_for_a_controller(coordinator: Callable[[Rig], None]) -> None:
    """With MindIO a fault is held until a controller serves."""
    for policy, phase in ((alone().policy, JobPhase.RESTARTING), (Policy(), JobPhase.HELD)):
        rig = Rig.running(policy=policy)
        coordinator(rig)
        rig.exits(0)
        assert rig.state.phase is phase


@pytest.mark.parametrize(
    "asked", [e.MigrateRequested(nodes=(0,)), e.PauseRequested(request="2026-01-01T00:00:00Z", seconds=300)]
)
def test_what_only_mindio_can_do_is_refused_in_words(asked: e.JobEvent) -> None:
    rig = alone()
    said = [one for one in rig.tell(asked) if isinstance(one, Announce)]
    assert rig.state.phase is JobPhase.RUNNING
    assert [WITHOUT_MINDIO in one.message for one in said] == [True]


def test_it_is_suspended_without_a_save() -> None:
    rig = alone()
    rig.tell(e.SuspendRequested())
    assert rig.state.phase is JobPhase.SUSPENDED
