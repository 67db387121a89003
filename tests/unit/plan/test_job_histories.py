"""Whole lives of a job, told event by event: every effect and every change of state, field for field.

The expected lives stand in lives/ as JSON, and read like a log. After a wanted change `HAJOB_UPDATE_GOLDEN=1 pytest`
writes them anew; the difference is what has to be reviewed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from hajob.api.base import Json
from hajob.domain.actions import FAULT_ACTIONS, Action
from hajob.domain.facts import FactKind, Source
from hajob.plan import events as e
from hajob.plan.effects import Effect
from hajob.plan.policy import ActionLimits, CoordinatorLossPolicy, Mode, NodePolicy, Policy
from hajob.plan.state import JobState
from tests.rigs import kept
from tests.rigs.kept import as_json, keep_life, kept_life
from tests.rigs.plan_rig import Rig, from_dict, in_words, to_dict
from tests.rigs.plan_worlds import VIEW, without

NO_NODE = replace(VIEW, free_nodes=0)


class Teller(Rig):
    """A rig that writes down what happens."""

    steps: list[Json]

    def tell(self, event: e.JobEvent, now: int | None = None) -> tuple[Effect, ...]:
        before, pods = to_dict(self.state), set(self.pods)
        done = super().tell(event, now)
        assert self.transition is not None
        assert from_dict(to_dict(self.state)) == self.state, "whoever takes over goes on from here"
        step = {
            "event": as_json(event),
            "ignored": self.ignored,
            "considered": {verdict.action.value: verdict.verdict_message for verdict in self.transition.considered},
            "effects": as_json(done),
            "pods": [in_words(pod) for pod in self.pods if pod not in pods],
            "pods that go": [in_words(pod) for pod in sorted(pods - set(self.pods), key=str)],
            "state": dict(changes(before, to_dict(self.state))),
        }
        self.steps.append({"at": self.now, **{part: told for part, told in step.items() if told}})
        return done


def changes(before: Any, after: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """What has changed in a journal, by where it stands there."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from changes(before.get(key), after.get(key), f"{where}.{key}" if where else key)
    elif before != after:
        yield where, after


def start(policy: Policy | None = None, **more: Any) -> Teller:
    teller = Teller(Rig.running().state, policy=policy or Policy(), **more)
    teller.steps = []
    return teller


def first_start() -> Teller:
    rig = start(Policy(active_deadline_seconds=1000))
    rig.state = JobState()
    rig.tell(e.Accepted())
    rig.see(FactKind.POD_UNSTARTABLE, node=1, code="ErrImagePull", message="slow registry")
    rig.tell(e.PodsReady())
    rig.tell(e.AllRanksStarted(1, 7))
    rig.tell(e.AllRanksStarted(1, 1))
    rig.tell(e.Resumed(1, 1))
    rig.tell(e.CheckpointVerified(step=40))
    rig.tell(e.AllFinished())
    rig.tell(e.Deleted())
    return rig


def cascade() -> Teller:
    rig = start()
    rig.exits(5, message="Killed")
    rig.exits(3, exit_code=1, code="E1")
    rig.silent(0)
    rig.tell(e.Stopped(2, (0, 1, 3, 5, 7)))
    rig.exits(5)
    rig.silent(0)
    rig.tell(e.ReplacementsReady(3, 1))
    rig.tell(e.ReplacementsReady(3, rig.incident.revision))
    rig.tell(e.Named(3, rig.incident.revision))
    rig.tell(e.StrategiesOffered(3, ("exit", "dump", "recover")))
    rig.tell(e.Resumed(3, 8))
    rig.tell(e.ResultReported(3, 0, "", "recover"))
    return rig


def retry_that_cannot_clean() -> Teller:
    rig = start()
    rig.memory(3, Source.MINDIO)
    rig.tell(e.Stopped(2, (3, 4)))
    rig = start()
    rig.memory(3, Source.MINDIO)
    rig.tell(e.Named(2, 1))
    rig.tell(e.ResultReported(2, 405, "clean failed", "retry"))
    rig.tell(e.Named(2, 2))
    rig.tell(e.ResultReported(2, 0, "", "recover"))
    rig.tell(e.Resumed(2, 6))
    return rig


def saved_and_restarted() -> Teller:
    rig = start()
    rig.silent(2)
    rig.tell(e.Named(2, 1))
    rig.exits(3, exit_code=1)
    rig.tell(e.Named(2, 2))
    rig.tell(e.StrategiesOffered(2, ("exit", "dump")))
    rig.tell(e.ResultReported(2, 0, "", "dump"))
    rig.tell(e.PodsReady())
    rig.exits(0, exit_code=1, message="ImportError")
    rig.tell(e.AllRanksStarted(attempt=3))
    rig.tell(e.Resumed(4, 7))
    return rig


def no_result_at_all() -> Teller:
    rig = start()
    rig.exits(5)
    rig.tell(e.Named(2, 1))
    rig.tell(e.Resumed(2, 8))
    rig.deadline("Recovery")
    rig.exits(5)
    rig.tell(e.Resumed(3, 9))
    rig.exits(6)
    rig.deadline("Recovery")
    rig.deadline("Startup")
    return rig


def shrunk_and_grown(policy: Policy | None = None) -> Teller:
    rig = start(policy, view=NO_NODE)
    rig.silent(2)
    rig.deadline("Recovery")
    rig.tell(e.ResultReported(2, 201, "isolate", "downgrade", (4, 5, 6, 7, 99)))
    rig.tell(e.Resumed(2, 11))
    rig.tell(e.ResultReported(2, 0, "", "downgrade"))
    rig.exits(4)
    rig.deadline("Expand")
    rig.tell(e.CapacityAvailable(nodes=2))
    rig.tell(e.CapacityLost())
    rig.tell(e.CapacityAvailable(nodes=2))
    rig.view = VIEW if policy is None else replace(VIEW, free_nodes=2)
    rig.deadline("Expand")
    rig.tell(e.ReplacementsReady(3, 1))
    rig.deadline("Recovery")
    rig.grow()
    rig.tell(e.StrategiesOffered(4, ("upgrade",)))
    rig.tell(e.ResultReported(4, 0, "", "upgrade"))
    return rig


def shrunk_released() -> Teller:
    return shrunk_and_grown(Policy(release_shrunk_pods=True, expand_delay_seconds=7))


def growing_disturbed() -> Teller:
    rig = start(view=NO_NODE)
    rig.silent(2)
    rig.deadline("Recovery")
    rig.view = VIEW
    rig.tell(e.ResultReported(2, 0, "", "downgrade"))
    rig.deadline("Expand")
    rig.exits(4)
    rig.grow()
    rig.exits(2)
    return rig


def shrink_refused() -> Teller:
    rig = start(view=NO_NODE)
    rig.silent(2)
    rig.deadline("Recovery")
    rig.tell(e.ResultReported(2, 499, "no complete duplication", "downgrade"))
    return rig


def moved() -> Teller:
    rig = start()
    rig.tell(e.MigrateRequested(nodes=(1, 2), avoid=("node-9",), reason="sick"))
    rig.tell(e.ReplacementsReady(2, 1))
    rig.tell(e.StrategiesOffered(2, ("migration",)))
    rig.tell(e.ResultReported(2, 0, "", "migration"))
    rig.see(FactKind.CORDONED, node=3, node_name="node-3")
    rig.see(FactKind.SUB_HEALTH, node=0)
    rig.deadline("Recovery")
    rig.tell(e.MigrateRequested(nodes=(9,)))
    rig.tell(e.MigrateRequested(nodes=(1,)))
    rig.exits(7)
    rig.tell(e.MigrateRequested(nodes=(1,)))
    return rig


def suspended() -> Teller:
    rig = start()
    rig.exits(5)
    rig.tell(e.SuspendRequested())
    rig.tell(e.ResultReported(2, 0, "", "dump"))
    rig.tell(e.ResumeRequested())
    rig.tell(e.SuspendRequested())
    rig.tell(e.ResumeRequested())
    rig.deadline("Startup")
    return rig


def suspended_while_planned() -> Teller:
    rig = start()
    rig.tell(e.MigrateRequested(nodes=(1,)))
    rig.tell(e.SuspendRequested())
    rig.tell(e.ResumeRequested())
    rig.tell(e.SuspendRequested())
    rig.deadline("Recovery")
    rig = start(view=replace(VIEW, coordinator_ready=False))
    rig.tell(e.SuspendRequested())
    return rig


def restart_asked() -> Teller:
    rig = start()
    rig.tell(e.RestartRequested())
    rig.tell(e.RestartRequested())
    rig.tell(e.ResultReported(2, 0, "", "dump"))
    rig.tell(e.RestartRequested())
    rig.tell(e.PodsReady())
    rig.tell(e.AllRanksStarted(attempt=3))
    rig.tell(e.Resumed(0, 30))
    rig.view = replace(VIEW, coordinator_ready=False)
    rig.tell(e.RestartRequested())
    return rig


def restart_asked_in_the_middle() -> Teller:
    rig = start()
    rig.silent(2)
    rig.tell(e.RestartRequested())
    rig.deadline("Recovery")
    rig.exits(1)
    return rig


def coordinator_gone(policy: CoordinatorLossPolicy) -> Callable[[], Teller]:
    def life() -> Teller:
        rig = start(Policy(coordinator_loss=policy))
        rig.out_of_reach()
        rig.tell(e.CoordinatorReady())
        rig.see(FactKind.CONTROLLER_LOST, message="killed")
        rig.tell(e.ControllerTakenOver(duration_ms=40))
        rig.tell(e.CoordinatorReady())
        rig.lose_for_good("its agents are too old")
        rig.tell(e.CheckpointVerified(step=50))
        rig.tell(e.PodsReady())
        rig.tell(e.CoordinatorLost())
        return rig

    return life


def coordinator_gone_while_recovering() -> Teller:
    rig = start()
    rig.exits(5)
    rig.out_of_reach()
    rig.tell(e.CoordinatorLost())
    rig = start()
    rig.tell(e.MigrateRequested(nodes=(1,)))
    rig.tell(e.CoordinatorLost())
    rig.exits(3)
    return rig


def coordinator_out_of_reach() -> Teller:
    rig = start(view=replace(VIEW, coordinator_ready=False))
    rig.out_of_reach()
    rig.deadline("Coordinator")
    rig.tell(e.AllFinished())
    return rig


def held() -> Teller:
    rig = start(Policy(mode=Mode.HOLD))
    rig.exits(5, message="held up")
    rig.silent(1)
    rig.memory(2, Source.MINDIO)
    rig.policy = Policy()
    rig.tell(e.PolicyChanged())
    return rig


def observed() -> Teller:
    rig = start(Policy(mode=Mode.OBSERVE))
    rig.exits(5)
    rig.see(FactKind.SUB_HEALTH, node=1)
    return rig


def broken_program() -> Teller:
    rig = start(Policy(max_program_failures=2))
    for step in range(3):
        rig.exits(5, exit_code=1, step=step, message="ValueError: no")
        if rig.state.incident is not None:
            rig.recover()
    rig.tell(e.Deleted())
    return rig


def nothing_left() -> Teller:
    rig = start(replace(Policy(), limits={a: replace(r, max_count=1) for a, r in Policy().limits.items()}))
    rig.exits(5)
    for _ in range(3):
        rig.deadline("Recovery" if "Recovery" in rig.state.deadlines else "Startup")
    rig.deadline("Startup") if "Startup" in rig.state.deadlines else None
    return rig


def evicted() -> Teller:
    rig = start(Policy(sub_health=NodePolicy.EVICT))
    rig.see(FactKind.SUB_HEALTH, node=1, node_name="node-1")
    rig.see(FactKind.DATA_CORRUPTED, ranks=(7,), source=Source.MINDIO)
    rig.tell(e.AllFinished())
    return rig


def bad_start() -> Teller:
    rig = start(Policy(max_program_failures=2))
    rig.state = JobState()
    rig.tell(e.Accepted())
    rig.exits(0, exit_code=1, message="ImportError")
    rig.exits(1, exit_code=1, incarnation=1)
    rig.exits(3, exit_code=1)
    rig.tell(e.PodsReady())
    rig.exits(3, exit_code=1)
    return rig


def deleted_in_the_middle() -> Teller:
    rig = start()
    rig.exits(5)
    rig.tell(e.Deleted())
    return rig


def growing_by_budget() -> Teller:
    policy = Policy(limits={**Policy().limits, Action.EXPAND: ActionLimits(1, 100_000, 60)})
    rig = start(policy, view=NO_NODE)
    rig.silent(2)
    rig.deadline("Recovery")
    rig.tell(e.ResultReported(2, 201, "", "downgrade", (0, 4, 5)))
    rig.tell(e.Resumed(2, 11))
    rig.view = VIEW
    rig.deadline("Expand")
    rig.view = NO_NODE
    rig.deadline("Expand")
    rig.view = VIEW
    rig.grow()
    rig.deadline("Recovery")
    rig.tell(e.CapacityAvailable(nodes=4))
    rig.deadline("Expand")
    return rig


def grown_by_its_first_step() -> Teller:
    rig = start(view=NO_NODE)
    rig.silent(2)
    rig.deadline("Recovery")
    rig.tell(e.Resumed(2, 11))
    rig.view = replace(VIEW, free_nodes=None)
    rig.grow()
    rig.tell(e.Resumed(3, 30))
    return rig


def moves_refused() -> Teller:
    rig = start(Policy(limits={**Policy().limits, Action.MIGRATE: ActionLimits(0, 100, 60)}))
    rig.tell(e.MigrateRequested(nodes=(1,)))
    rig.policy = Policy()
    rig.view = replace(VIEW, coordinator_ready=False)
    rig.tell(e.MigrateRequested(nodes=(1,)))
    rig.view = replace(VIEW, step=0)
    rig.tell(e.MigrateRequested(nodes=(1,)))
    rig.see(FactKind.CORDONED, node=1)
    return rig


def observed_without_a_way() -> Teller:
    rig = start(replace(without(*FAULT_ACTIONS), mode=Mode.OBSERVE))
    rig.exits(5)
    return rig


def too_late() -> Teller:
    rig = start(Policy(active_deadline_seconds=5))
    rig.state = JobState()
    rig.tell(e.Accepted())
    rig.tell(e.DeadlineReached(name="Active"))
    rig.deadline("Active")
    return rig


LIVES: dict[str, Callable[[], Teller]] = {
    life.__name__: life
    for life in (
        *(first_start, cascade, retry_that_cannot_clean, saved_and_restarted, no_result_at_all, shrunk_and_grown),
        *(shrunk_released, growing_disturbed, shrink_refused, moved, suspended, suspended_while_planned),
        *(restart_asked, restart_asked_in_the_middle, coordinator_gone_while_recovering, coordinator_out_of_reach),
        *(held, observed, broken_program, nothing_left, evicted, too_late, bad_start, deleted_in_the_middle),
        *(growing_by_budget, grown_by_its_first_step, moves_refused, observed_without_a_way),
    )
}
LIVES |= {f"coordinator_gone_{policy}": coordinator_gone(policy) for policy in CoordinatorLossPolicy}


@pytest.mark.parametrize("name", LIVES)
def test_a_life(name: str) -> None:
    steps = LIVES[name]().steps
    if os.environ.get("HAJOB_UPDATE_GOLDEN"):
        keep_life(name, steps)
    assert {"life": name, "steps": steps} == kept_life(name)


def test_every_kept_life_is_told() -> None:
    assert {path.stem for path in kept.LIVES.glob("*.json")} == LIVES.keys()
