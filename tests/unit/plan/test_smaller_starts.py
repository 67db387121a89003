"""`elastic.restartSize: Available`: a start anew that cannot have all nodes takes what it can train with, and grows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hajob.api.event_reasons import EventReason
from hajob.domain.actions import Action, OrderCommand
from hajob.domain.incidents import Purpose, RestoredFrom
from hajob.domain.layout import Layout
from hajob.plan import effects as do
from hajob.plan import events as e
from hajob.plan.placements import placements
from hajob.plan.policy import FIT_SECONDS, LOOK_AGAIN_SECONDS, policy_from_spec
from hajob.plan.sizes import StartSizes
from hajob.plan.state import Deadline, JobPhase, Smaller
from hajob.plan.view import ClusterView
from hajob.plan.waits import WaitReason, nodes_to_return, wait_of_job
from tests.rigs.plan_rig import Rig, from_dict, to_dict
from tests.rigs.plan_specs import GOOD, spec, unknown, unmet
from tests.rigs.plan_worlds import VIEW

MANY = GOOD.replace("64", "2310")
"""A global batch of 2 x 3 x 5 x 7 x 11."""
AVAILABLE = {"restartSize": "Available", "expandDelaySeconds": 30}


def sizes(arguments: str | None = GOOD, **changes: Any) -> StartSizes | None:
    return policy_from_spec(spec(arguments, **{"elastic": AVAILABLE, **changes})).sizes


def fitting(nodes: int | None, **changes: Any) -> int:
    found = sizes(**changes)
    assert found is not None
    return found.largest_fitting(nodes)


def job(nodes: int, arguments: str | None = GOOD, **elastic: object) -> Rig:
    """A job of 4 nodes that trains, where a start of the whole job would find so many."""
    policy = policy_from_spec(spec(arguments, elastic={**AVAILABLE, **elastic}))
    return Rig.running(view=replace(VIEW, free_nodes=0, start_nodes=nodes), policy=policy)


def restarted(nodes: int = 3, arguments: str | None = GOOD) -> Rig:
    """Node rank 0 was lost, saved by the others, and the job started anew with what there is."""
    rig = job(nodes, arguments)
    rig.silent(0)
    rig.deadline("Recovery")
    rig.tell(e.ResultReported(rig.incident.incarnation, 0, strategy="dump"))
    assert rig.at(JobPhase.RESTARTING)
    return rig


def smaller(nodes: int = 3) -> Rig:
    """And trains."""
    rig = restarted(nodes)
    layout = replace(rig.view.layout, num_nodes=rig.state.nodes)
    rig.view = replace(rig.view, layout=layout, node_names={rank: f"node-{rank}" for rank in range(layout.num_nodes)})
    rig.policy = policy_from_spec(spec(elastic=AVAILABLE), nodes=rig.state.nodes)
    trains(rig)
    return rig


def trains(rig: Rig) -> None:
    for event in (e.PodsReady(), e.AllRanksStarted(), e.Resumed(step=20)):
        rig.tell(event)
    assert rig.at(JobPhase.RUNNING)


def comes(rig: Rig, missing: int = 2) -> None:
    """There are nodes for the missing, and a start would find all."""
    rig.view = replace(rig.view, free_nodes=missing, start_nodes=4)
    rig.tell(e.CapacityAvailable(nodes=missing))


@pytest.mark.parametrize(("nodes", "taken"), [(None, 0), (5, 0), (4, 0), (3, 2), (2, 2), (1, 0), (0, 0)])
def test_an_even_number_of_data_parallel_ranks_is_taken(nodes: int | None, taken: int) -> None:
    assert fitting(nodes) == taken


@pytest.mark.parametrize(
    ("changes", "nodes", "taken"),
    [
        ({"numNodes": 12, "parallelism": {"tensor": 4}}, 11, 8),  # whole data-parallel ranks of two nodes, even, of 64
        ({"numNodes": 12, "parallelism": {"tensor": 2, "pipeline": 2}}, 7, 4),
        ({"numNodes": 12}, 11, 8),  # 10 do not share a global batch of 64
        ({"numNodes": 12, "arguments": GOOD.replace("64", "60")}, 11, 10),
        ({"numNodes": 12, "arguments": MANY}, 11, 10),
        ({"numNodes": 12, "optimizer": {"copies": 1}, "arguments": MANY}, 11, 11),
        ({"numNodes": 12, "optimizer": {"sharding": "None"}, "arguments": MANY}, 11, 11),
        ({"numNodes": 8, "elastic": {**AVAILABLE, "minDataParallel": 5}}, 7, 0),
        ({"numNodes": 8, "elastic": {**AVAILABLE, "minDataParallel": 4}}, 7, 4),
        ({"numNodes": 16, "parallelism": {"tensor": 2, "expert": 4}}, 15, 8),  # the experts' copies divide as well
    ],
)
def test_every_rule_of_a_start_binds(changes: dict[str, Any], nodes: int, taken: int) -> None:
    assert fitting(nodes, **changes) == taken


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (GOOD.replace("--ckpt-format torch ", "--ckpt-format torch_dist "), "CheckpointResizable"),
        (f"{GOOD} --reuse-fp32-param", "CheckpointResizable"),
        (GOOD.replace("--global-batch-size 64 ", ""), "GlobalBatchGiven"),
    ],
)
def test_what_cannot_be_loaded_smaller_is_refused_by_name(arguments: str, name: str) -> None:
    asked = spec(arguments, elastic=AVAILABLE)
    assert name in unmet(asked)[Action.RESTART]
    assert name not in unmet(spec(arguments)).get(Action.RESTART, set())
    assert sizes(arguments) is None


def test_a_batch_that_nobody_sees_is_not_risked() -> None:
    asked = spec(None, elastic=AVAILABLE)
    assert {"CheckpointResizable", "GlobalBatchGiven"} <= unknown(asked)
    assert policy_from_spec(asked).sizes is None
    assert policy_from_spec(asked, ["train.py", *GOOD.split()]).sizes is not None, "the first launch shows it"
    without = GOOD.replace("--global-batch-size 64 ", "").split()
    told = policy_from_spec(asked, ["train.py", *without])
    assert told.sizes is None
    assert "GlobalBatchGiven" in {one.name for one in told.advice[Action.RESTART]}
    assert policy_from_spec(spec()).sizes is None


def test_a_lost_node_of_rank_zero_leads_to_a_smaller_start() -> None:
    rig = restarted()
    assert rig.state.smaller == Smaller(nodes=2, missing=2, since_ms=rig.now)
    assert (rig.incident.escalated_from, rig.incident.action) == ((Action.REPLACE, Action.CHECKPOINT), Action.RESTART)
    assert (rig.incident.restored_from, rig.incident.nodes) == (RestoredFrom.SAVED_CHECKPOINT, 2)
    assert [pod.node_rank for pod in rig.pods.ranks] == [0, 1]
    assert from_dict(to_dict(rig.state)) == rig.state
    assert rig.transition is not None
    said = [one for one in rig.transition.effects if isinstance(one, do.Announce)]
    assert said == [
        do.Announce(EventReason.SMALLER_START, "starts with 2 of 4 rank pods (elastic.restartSize: Available)")
    ]


def test_a_fault_while_shrunk_leads_to_a_smaller_start() -> None:
    rig = job(2)
    rig.silent(3)
    rig.deadline("Recovery")
    rig.tell(e.Resumed(rig.incident.incarnation, 11))
    shrunk = rig.state.shrunk
    assert rig.at(JobPhase.SHRUNK)
    assert shrunk is not None
    rig.silent(2)
    assert (rig.at(JobPhase.SAVING), rig.action) == (True, Action.CHECKPOINT)
    rig.tell(e.ResultReported(rig.incident.incarnation, 0, strategy="dump"))
    assert rig.state.smaller == Smaller(2, 2, shrunk.since_ms), "since when it has had fewer than all"
    assert rig.state.shrunk is None


@pytest.mark.parametrize("nodes", [4, 1])
def test_where_all_fit_or_none_does_the_start_is_whole(nodes: int) -> None:
    rig = restarted(nodes)
    assert rig.state.smaller is None
    assert len(rig.pods.ranks) == 4


def test_original_restarts_whole_whatever_there_is() -> None:
    rig = Rig.running(view=replace(VIEW, start_nodes=2), policy=policy_from_spec(spec()))
    rig.tell(e.RestartRequested())
    rig.tell(e.ResultReported(rig.incident.incarnation, 0, strategy="dump"))
    assert (rig.at(JobPhase.RESTARTING), rig.state.smaller) == (True, None)


def test_a_first_start_is_always_whole() -> None:
    rig = job(2)
    rig.state = from_dict({})
    rig.tell(e.Accepted())
    assert rig.state.smaller is None
    rig.tell(e.PlacesMissing(message="no nodes"))
    assert Deadline.FIT not in rig.state.deadlines


def test_a_start_that_waits_for_a_minute_does_with_fewer() -> None:
    rig = restarted(4)
    rig.tell(e.PlacesMissing(message="of 4 nodes 2 are taken"))
    began = rig.now
    rig.deadline("Fit")
    assert rig.now == began + 1000 * FIT_SECONDS
    assert (rig.state.smaller, rig.state.attempt) == (None, 2), "what is missing may come yet"
    rig.view = replace(rig.view, start_nodes=3)
    rig.deadline("Fit")
    assert (rig.state.nodes, rig.state.attempt, rig.state.waiting) == (2, 3, None)
    assert rig.at(JobPhase.RESTARTING)


def test_nodes_that_stay_for_the_delay_are_grown_onto() -> None:
    rig = smaller()
    need = "needs 2 free nodes at once with 2 chips each, for node ranks 2, 3"
    wait = wait_of_job(rig.state, rig.view, rig.policy, rig.now)
    assert wait is not None
    assert (wait.reason, wait.message) == (
        WaitReason.NO_FREE_NODE,
        f"{need}; free after jobs ahead in the queue: 0",
    )
    assert nodes_to_return(rig.state, rig.policy, rig.now) == (2, 3)
    comes(rig)
    since = rig.now
    rig.tell(e.CapacityAvailable(nodes=2))
    wait = wait_of_job(rig.state, rig.view, rig.policy, rig.now)
    assert wait is not None
    assert wait.reason is WaitReason.DELAY
    (saved,) = rig.orders(rig.deadline("Expand"))
    assert rig.now == since + 30_000
    assert (saved.command, rig.incident.purpose) == (OrderCommand.CHECKPOINT, Purpose.GROW)
    assert (rig.incident.cause.code, rig.incident.lost_ranks) == ("ExpandDue", ())
    assert nodes_to_return(rig.state, rig.policy, rig.now) == (2, 3), "nobody else takes them meanwhile"
    rig.tell(e.ResultReported(rig.incident.incarnation, 0, strategy="dump"))
    assert (rig.at(JobPhase.RESTARTING), rig.state.smaller) == (True, None)
    assert len(placements(rig.state, 4).ranks) == 4
    spent = [one.budget for one in rig.state.spent]
    assert spent.count(Action.EXPAND) == 1


def test_a_planned_growth_spends_no_budget_of_faults() -> None:
    rig = smaller()
    before = [one.budget for one in rig.state.spent]
    comes(rig)
    rig.deadline("Expand")
    rig.tell(e.ResultReported(rig.incident.incarnation, 0, strategy="dump"))
    assert [one.budget for one in rig.state.spent] == [*before, Action.EXPAND]


def test_nodes_that_go_before_the_delay_grow_nothing() -> None:
    rig = smaller()
    comes(rig)
    rig.view = replace(rig.view, free_nodes=1)
    rig.tell(e.CapacityLost())
    assert rig.state.smaller is not None
    assert rig.state.smaller.capacity_ms == 0
    rig.deadline("Expand")
    assert rig.at(JobPhase.RUNNING)
    comes(rig)
    rig.view = replace(rig.view, free_nodes=1)  # gone unnoticed
    rig.deadline("Expand")
    assert rig.at(JobPhase.RUNNING)
    assert rig.state.smaller.capacity_ms == 0
    assert Deadline.EXPAND in rig.state.deadlines, "it looks again"


def test_what_vanishes_while_it_saves_leaves_it_smaller() -> None:
    rig = smaller()
    since = rig.state.smaller
    comes(rig)
    rig.deadline("Expand")
    rig.view = replace(rig.view, start_nodes=2, free_nodes=0)
    rig.tell(e.ResultReported(rig.incident.incarnation, 0, strategy="dump"))
    assert rig.state.smaller == since


def test_a_job_that_keeps_shrinking_grows_later_each_time() -> None:
    rig, waited = smaller(), []
    for _ in range(3):
        comes(rig)
        began = rig.now
        rig.deadline("Expand")
        waited.append(rig.now - began)
        assert rig.at(JobPhase.SAVING)
        rig.view = replace(rig.view, start_nodes=2, free_nodes=0)
        rig.tell(e.ResultReported(rig.incident.incarnation, 0, strategy="dump"))
        trains(rig)
    assert waited == [30_000, 60_000, 120_000]


def test_nodes_that_a_fault_may_have_taken_have_to_last_anew() -> None:
    rig = smaller()
    comes(rig)
    rig.silent(1)
    assert rig.state.smaller is not None
    assert rig.state.smaller.capacity_ms == 0


def test_without_a_save_it_grows_from_the_next_checkpoint() -> None:
    rig = smaller()
    rig.view = replace(rig.view, coordinator_ready=False)
    comes(rig)
    rig.tell(e.CheckpointVerified(step=30))
    assert rig.at(JobPhase.RUNNING), "not before the delay is over"
    rig.deadline("Expand")
    assert rig.at(JobPhase.RUNNING)
    rig.tell(e.CheckpointVerified(step=40))
    assert (rig.at(JobPhase.RESTARTING), rig.state.smaller) == (True, None)
    assert rig.incident.restored_from is RestoredFrom.PERIODIC_CHECKPOINT


def test_what_cannot_be_saved_is_not_asked_for_without_a_pause() -> None:
    rig = smaller()
    rig.policy = replace(rig.policy, expand_delay_seconds=0)
    rig.view = replace(rig.view, coordinator_ready=False)
    comes(rig)
    for _ in range(3):
        rig.deadline("Expand")
        assert rig.at(JobPhase.RUNNING)
        assert rig.state.deadlines[Deadline.EXPAND] - rig.now == 1000 * LOOK_AGAIN_SECONDS


def test_a_smaller_job_is_protected_at_its_size() -> None:
    rig = smaller()
    rig.exits(3)
    assert (rig.action, rig.incident.nodes) == (Action.IN_PLACE, 2)
    rig.recover()
    rig.view = replace(rig.view, start_nodes=1)
    rig.silent(1)
    assert rig.action is Action.REPLACE
    assert Layout(2, 2, tensor=2) == ClusterView(rig.view.layout).layout
