"""One patience of operator, coordinator and MindIO: for every replacementTimeoutSeconds the operator decides first."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hajob.api.job import HATrainingJob
from hajob.domain.actions import Action
from hajob.domain.facts import Fact, FactKind
from hajob.domain.patience import (
    ANSWER_MARGIN_SECONDS,
    DECISION_SECONDS,
    LONGEST_WAIT_SECONDS,
    MINDIO_WAIT_SECONDS,
    SAVE_BEFORE_SECONDS,
    standing_seconds,
)
from hajob.job.orders import build_standing_orders
from hajob.plan import events
from hajob.plan.machine import advance_job
from hajob.plan.policy import Policy, layout_from_spec, policy_from_spec
from hajob.plan.state import Deadline, JobPhase, JobState
from hajob.plan.view import ClusterView
from hajob.pods.environment import rank_environment
from hajob.protocol import sidecar_pb2 as pb
from release.generate import crd_schema
from tests.rigs.coordinator import World
from tests.unit.defaults.rig import MINIMAL
from trainer_sidecar.coordinator.state.job import Limits

ROOT = Path(__file__).parents[3]
LAST_RESORT = MINDIO_WAIT_SECONDS - ANSWER_MARGIN_SECONDS - SAVE_BEFORE_SECONDS
LEADER_CHANGE_SECONDS = 60
"""Twice what a leader's Lease takes to be given up and taken."""
BEGUN = JobState(phase=JobPhase.RUNNING, incarnation=1, attempt=1, base=1, coordinator=1)


def policy(seconds: int, **recovery: Any) -> Policy:
    spec = {**MINIMAL["spec"], "recovery": {"replacementTimeoutSeconds": seconds, **recovery}}
    return policy_from_spec(spec)


def served() -> ClusterView:
    names = {node: f"node-{node}" for node in range(4)}
    return ClusterView(
        layout=layout_from_spec(MINIMAL["spec"]), step=5, coordinator_ready=True, free_nodes=0, node_names=names
    )


def silent(node: int, number: int = 0) -> events.FactSeen:
    return events.FactSeen(fact=Fact(f"silent-{node}-{number}", FactKind.AGENT_SILENT, node_rank=node))


def highest_accepted() -> int:
    """Above which the server refuses the value, by the CRD's rules for new jobs and for edits."""
    rules = [each["rule"] for each in crd_schema.open_api_schema()["x-kubernetes-validations"]]
    found = {number for rule in rules for number in re.findall(r"self.*replacementTimeoutSeconds <= (\d+)", rule)}
    (highest,) = found
    return int(highest)


def test_the_operator_decides_first_whatever_the_timeout() -> None:
    """Each value that the server takes: when the operator gives up waiting, nobody else has decided before."""
    view, highest = served(), highest_accepted()
    assert highest == LONGEST_WAIT_SECONDS
    known = policy_from_spec(MINIMAL["spec"])
    for seconds in range(1, highest + 1):
        of_job = replace(known, replacement_timeout_seconds=seconds)
        state = advance_job(BEGUN, silent(2), view, of_job, 0).state
        assert state.phase is JobPhase.GATHERING
        due = state.deadlines[Deadline.RECOVERY] / 1000
        assert due == seconds
        assert due < build_standing_orders(of_job).save_after_milliseconds / 1000 == standing_seconds(seconds)
        assert due + LEADER_CHANGE_SECONDS < LAST_RESORT
        late = advance_job(state, events.DeadlineReached(name=Deadline.RECOVERY), view, of_job, int(1000 * due)).state
        assert late.phase is JobPhase.SHRINKING


@pytest.mark.parametrize("seconds", [1, 270, 3480])
@pytest.mark.parametrize("between", [30, 200, 900])
def test_further_losses_do_not_outlast_mindio(seconds: int, between: int) -> None:
    """Node after node: the operator begins to wait anew each time, MindIO's wait goes on."""
    of_job, view, now = policy(seconds), served(), 0
    state = advance_job(BEGUN, silent(2), view, of_job, 0).state
    state = advance_job(state, events.Stopped(incarnation=state.incarnation), view, of_job, 1000).state
    for number in range(200):
        due = state.deadlines[Deadline.RECOVERY]
        if due <= now + 1000 * between:
            break
        now += 1000 * between
        fact = Fact(f"more-{number}", FactKind.AGENT_SILENT, node_rank=2)
        state = advance_job(state, events.FactSeen(fact=fact), view, of_job, now).state
        if state.phase is not JobPhase.GATHERING:
            return  # another action was taken: nothing is waited for any more
    else:
        pytest.fail("it waits for ever")
    assert due / 1000 + LEADER_CHANGE_SECONDS < 1 + LAST_RESORT


def test_a_process_that_may_take_a_year_does_not_outlast_mindio() -> None:
    actions = [{"name": "InPlace", "deadlineSeconds": 31_000_000}]
    died = Fact("exit", FactKind.PROCESS_EXITED, ranks=(17,), exit_code=-9)
    state = advance_job(BEGUN, events.FactSeen(fact=died), served(), policy(270, actions=actions), 0).state
    assert state.incident is not None
    assert state.incident.action is Action.IN_PLACE
    assert state.deadlines[Deadline.RECOVERY] == 1000 * LONGEST_WAIT_SECONDS


def test_every_job_has_the_same_wait() -> None:
    """An edit of a running job changes no pod that runs, so no wait may follow from what can be edited."""
    raw = {**MINIMAL, "metadata": {"name": "x", "namespace": "y", "uid": "z"}}
    waits = set()
    for seconds in (1, 270, LONGEST_WAIT_SECONDS, 100_000):
        raw["spec"] = {**MINIMAL["spec"], "recovery": {"replacementTimeoutSeconds": seconds}}
        job = HATrainingJob.from_object(raw)
        waits.add(rank_environment(job, policy_from_spec(job.spec))["MINDIO_WAIT_MINDX_TIME"])
    assert waits == {str(MINDIO_WAIT_SECONDS)}


def lost_node(save_after: int, *, there: bool) -> World:
    """A lost pod that the operator has ordered to be replaced, and that does not come."""
    world = World(limits=Limits(answer_seconds=MINDIO_WAIT_SECONDS - ANSWER_MARGIN_SECONDS))
    world.standing = pb.StandingOrders(
        decision_timeout_milliseconds=1000 * DECISION_SECONDS,
        save_after_milliseconds=1000 * save_after,
        allow_checkpoint=True,
    )
    world.core.note_operator(1, world.now)
    world.start()
    world.step(1)
    world.die(3)
    world.agent(1).powered = False
    world.order(pb.REPLACE, incarnation=2, revision=1, lost_ranks=[2, 3], replaced_nodes=[1])
    if not there:
        world.core.job.operator.note_operator_left(world.now)
    return world


def wait(world: World, seconds: float) -> None:
    """Nothing happens for so long; the coordinator's clock goes on in few steps."""
    end = world.now + seconds
    while world.now < end:
        passed = min(10.0, end - world.now)
        world.now += passed
        world.keep_alive()
        world.core.check_time_limits(world.now, passed)
        world.pump()


@pytest.mark.parametrize("timeout", [1, 90, 270, LONGEST_WAIT_SECONDS])
def test_the_coordinator_saves_when_the_operator_stays_away(timeout: int) -> None:
    world = lost_node(standing_seconds(timeout), there=False)
    wait(world, timeout + 20)
    assert world.state.conversation == "Stopped"
    wait(world, 15)
    assert (world.state.conversation, world.state.standing_action) == ("Saving", pb.CHECKPOINT)


def test_the_coordinator_waits_for_an_operator_that_is_there() -> None:
    """Until MindIO is about to leave."""
    world = lost_node(standing_seconds(1), there=True)
    wait(world, LAST_RESORT - 15)
    assert world.state.conversation == "Stopped"
    wait(world, 20)
    assert (world.state.conversation, world.state.standing_action) == ("Saving", pb.CHECKPOINT)


def test_an_operator_that_was_away_for_a_moment_decides() -> None:
    world = lost_node(standing_seconds(1), there=True)
    wait(world, 100)
    world.core.job.operator.note_operator_left(world.now)
    wait(world, DECISION_SECONDS - 1)
    world.core.note_operator(1, world.now)
    wait(world, 100)
    assert world.state.conversation == "Stopped"


def test_an_undecided_death_is_the_operators_while_it_is_there() -> None:
    """It may be thinking: an API server that does not answer, a breaker, a person."""
    world = World(limits=Limits(answer_seconds=MINDIO_WAIT_SECONDS - ANSWER_MARGIN_SECONDS))
    world.standing = pb.StandingOrders(decision_timeout_milliseconds=1000 * DECISION_SECONDS, allow_in_place=True)
    world.core.note_operator(1, world.now)
    world.start()
    world.step(1)
    world.die(3)
    wait(world, 300)
    assert world.state.conversation == "Stopped"
    world.core.job.operator.note_operator_left(world.now)
    wait(world, DECISION_SECONDS + 1)
    assert world.state.standing_action == pb.IN_PLACE


def test_the_page_has_the_numbers() -> None:
    page = (ROOT / "docs/admin/clocks.md").read_text()
    for number in (LONGEST_WAIT_SECONDS, MINDIO_WAIT_SECONDS, LAST_RESORT, MINDIO_WAIT_SECONDS - ANSWER_MARGIN_SECONDS):
        assert f"{number:g}" in page
    assert f"| {DECISION_SECONDS}, the operator away as long |" in page
    assert f"| `replacementTimeoutSeconds` + {standing_seconds(0)}, the operator away for {DECISION_SECONDS} |" in page
