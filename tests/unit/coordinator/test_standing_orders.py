"""What the coordinator does when the operator stays away, and when MindIO's patience ends."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from trainer_sidecar.coordinator.state.job import Limits


def started(**allowed: object) -> World:
    world = World(limits=Limits(answer_seconds=118.0))
    world.standing = pb.StandingOrders(decision_timeout_milliseconds=5000, **allowed)  # type: ignore[arg-type]
    world.start()
    world.step(1)
    return world


def test_a_dead_process_is_started_again_in_place() -> None:
    world = started(allow_in_place=True, allow_checkpoint=True)
    world.die(3)
    world.advance(4.9)
    assert not world.called("on_global_rank")
    world.advance(0.5)
    assert world.state.standing_action == pb.IN_PLACE
    assert world.called("on_global_rank") == [{"ranks": [[3, 1]], "time": 1}]
    assert world.called("change_strategy") == [{"strategy": "recover", "parameters": ""}]


def test_a_death_while_successors_start_is_started_again_too() -> None:
    world = started(allow_in_place=True, allow_checkpoint=True)
    world.agent(1).start_delay = 3.0
    world.die(3)
    world.advance(6.0)
    assert world.state.standing_action == pb.IN_PLACE
    world.die(1)
    world.advance(4.0)
    assert world.called("on_global_rank") == [{"ranks": [[1, 1], [3, 1]], "time": 1}]
    assert world.called("change_strategy") == [{"strategy": "recover", "parameters": ""}]


def test_the_operator_may_say_the_same_afterwards() -> None:
    world = started(allow_in_place=True)
    world.die(3)
    world.advance(5.5)
    calls = len(world.mindio.calls)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(1.0)
    assert len(world.mindio.calls) == calls
    assert world.agent(1).processes[3].incarnation == 2
    assert world.agent(1).processes[3].start == 0


def test_a_memory_fault_is_retried() -> None:
    world = started(allow_retry=True, allow_in_place=True)
    world.mindio.strategies = ["exit", "dump", "retry"]
    world.mindio.ask = "stop"
    world.callback("report_fault_ranks", [[[1, 0]], [[1, ""]]])
    world.advance(5.5)
    assert world.state.standing_action == pb.RETRY
    assert world.called("change_strategy")[0]["strategy"] == "retry"


def test_a_lost_pod_is_waited_for_and_saved_before_mindio_leaves() -> None:
    world = started(allow_in_place=True, allow_checkpoint=True)
    world.die(3)
    world.agent(1).powered = False
    world.core.note_disconnected_agent(world.agent(1).uid, world.now, refused=False)
    world.advance(80)
    assert not world.called("on_global_rank")
    world.advance(15)
    assert world.state.standing_action == pb.CHECKPOINT
    assert world.called("change_strategy") == [{"strategy": "dump", "parameters": ""}]


def test_missing_replacement_is_given_up_for_a_checkpoint() -> None:
    world = started(allow_checkpoint=True)
    world.die(3)
    world.agent(1).powered = False
    order = {"lost_ranks": [2, 3], "replaced_nodes": [1]}
    world.order(pb.REPLACE, incarnation=2, revision=1, **order)
    world.advance(95)
    assert world.called("change_strategy") == [{"strategy": "dump", "parameters": ""}]


@pytest.mark.parametrize(("action", "standing"), [(pb.RETRY, pb.IN_PLACE), (pb.SHRINK, pb.IN_PLACE)])
def test_overtaken_order_counts_as_none_without_operator(action: pb.Action, standing: pb.Action) -> None:
    world = started(allow_retry=True, allow_in_place=True, allow_checkpoint=True)
    world.mindio.ask = "stop"
    world.callback("report_fault_ranks", [[[1, 0]], [[1, ""]]])
    world.pump()
    world.die(3)
    world.order(action, revision=1, lost_ranks=[1])
    world.advance(4.8)
    assert not world.called("on_global_rank"), "the operator has its time"
    world.advance(0.6)
    assert world.state.standing_action == standing
    assert world.called("on_global_rank") == [{"ranks": [[1, 1], [3, 1]], "time": 1}]
    assert [call["strategy"] for call in world.called("change_strategy")] == ["recover"]


def test_overtaken_order_becomes_a_checkpoint_in_time() -> None:
    world = started(allow_checkpoint=True)
    world.mindio.ask = "stop"
    world.callback("report_fault_ranks", [[[1, 0]], [[1, ""]]])
    world.pump()
    world.die(3)
    world.order(pb.RETRY, revision=1, lost_ranks=[1])
    world.advance(85)
    assert not world.called("on_global_rank")
    world.advance(5)
    assert world.state.standing_action == pb.CHECKPOINT
    assert [call["strategy"] for call in world.called("change_strategy")] == ["dump"]


def refused_retry(**allowed: object) -> World:
    """A memory fault, a retry that the operator has ordered, and MindIO's 405; then the operator is gone."""
    world = started(**allowed)
    world.mindio.strategies = ["exit", "dump", "retry"]
    world.mindio.ask = "stop"
    world.callback("report_fault_ranks", [[[1, 0]], [[1, ""]]])
    world.pump()
    world.order(pb.RETRY, revision=1, lost_ranks=[1])
    world.mindio.result(405, "clean failed", {1: 1})
    world.mindio.strategies = ["exit", "dump", "recover"]
    world.pump()
    assert world.state.conversation == "RetryRefused"
    return world


def test_process_lost_by_a_retry_is_restarted_in_place() -> None:
    world = refused_retry(allow_retry=True, allow_in_place=True, allow_checkpoint=True)
    world.advance(4.9)
    assert len(world.called("on_global_rank")) == 1
    world.advance(0.8)
    assert world.state.standing_action == pb.IN_PLACE
    assert world.called("on_global_rank")[1:] == [{"ranks": [[1, 1]], "time": 1}]
    assert [call["strategy"] for call in world.called("change_strategy")] == ["retry", "recover"]


def test_refused_retry_becomes_a_checkpoint_in_time() -> None:
    world = refused_retry(allow_retry=True, allow_checkpoint=True)
    world.advance(85)
    assert world.state.conversation == "RetryRefused"
    world.advance(5)
    assert world.state.standing_action == pb.CHECKPOINT
    assert [call["strategy"] for call in world.called("change_strategy")] == ["retry", "dump"]


def failed_repair(**allowed: object) -> World:
    world = started(**allowed)
    world.die(3)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.2)
    world.mindio.result(406, "do repair failed", {3: 1})
    world.pump()
    assert world.state.conversation == "FailedOpen"
    return world


def test_a_repair_that_failed_is_followed_by_a_checkpoint() -> None:
    world = failed_repair(allow_in_place=True, allow_checkpoint=True)
    world.advance(4.8)
    assert world.state.conversation == "FailedOpen", "the operator has its time"
    world.advance(0.4)
    assert (world.state.conversation, world.state.standing_action) == ("Saving", pb.CHECKPOINT)
    assert [call["strategy"] for call in world.called("change_strategy")] == ["recover", "dump"]


def test_failed_repair_without_checkpoint_ends_with_mindio() -> None:
    world = failed_repair(allow_in_place=True)
    world.advance(117)
    assert world.state.conversation == "FailedOpen"
    world.advance(2)
    assert world.state.conversation == "Closed"


def test_strategy_not_offered_becomes_a_checkpoint() -> None:
    world = started(allow_in_place=True, allow_checkpoint=True)
    world.mindio.strategies = ["exit", "dump"]
    world.die(3)
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(4.8)
    assert world.state.conversation == "Choosing"
    world.advance(0.8)
    assert (world.state.conversation, world.state.standing_action) == ("Saving", pb.CHECKPOINT)
    assert [call["strategy"] for call in world.called("change_strategy")] == ["dump"]


@pytest.mark.parametrize("ordered", [True, False])
def test_offer_of_exit_only_holds_nobody(*, ordered: bool) -> None:
    """A word outside the list is the end, and says nothing more; so MindIO is told nothing, the operator at once."""
    world = started(allow_in_place=True, allow_checkpoint=True)
    world.mindio.strategies = ["exit"]
    world.die(3)
    if ordered:
        world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(0.5 if ordered else 5.5)
    assert (world.state.conversation, world.state.controller_ready) == ("Closed", False)
    assert "nothing but the end" in world.state.controller_problem
    assert [mark.result_code for mark in world.marks(pb.RESULT)] == [499]
    assert [fact.kind for fact in world.facts] == [pb.PROCESS_EXITED, pb.CONTROLLER_LOST]
    assert not world.called("change_strategy")


@pytest.mark.parametrize("ordered", [0, 3, 4])
def test_a_growth_that_failed_is_saved(ordered: int) -> None:
    """By the operator's order, under the same number or the next one, or without it (0)."""
    world = started(allow_checkpoint=True)
    world.mindio.strategies = ["exit", "dump", "recover", "downgrade"]
    world.die(2)
    world.die(3)
    world.order(pb.SHRINK, incarnation=2, revision=1, lost_ranks=[2, 3])
    world.advance(0.2)
    world.mindio.result(ranks={2: 1, 3: 1})
    world.pump()
    world.order(pb.EXPAND, incarnation=3, revision=1, lost_ranks=[2, 3], restart_ranks=[2, 3])
    world.advance(0.2)
    assert world.state.conversation == "Expanding"
    world.mindio.strategies = ["exit", "dump"]
    world.mindio.result(406, "upgrade repair failed", {3: 1})
    world.pump()
    assert world.state.conversation == "FailedOpen"
    if ordered:
        world.order(pb.CHECKPOINT, incarnation=ordered, revision=2, lost_ranks=[2, 3])
    world.advance(0.2 if ordered else 5.2)
    assert world.state.conversation == "Saving"
    assert [call["strategy"] for call in world.called("change_strategy")] == ["downgrade", "upgrade", "dump"]


def test_controller_is_told_gone_where_saving_is_not_allowed() -> None:
    world = started()
    world.die(3)
    world.advance(117)
    assert world.state.conversation == "Stopped"
    world.advance(2)
    assert world.state.conversation == "Closed"
    assert "nobody decided" in world.state.controller_problem
    assert [mark.result_code for mark in world.marks(pb.RESULT)] == [499]
    world.order(pb.IN_PLACE, revision=1, lost_ranks=[3], restart_ranks=[3])
    world.advance(1)
    assert not world.called("on_global_rank"), "a controller that has left is told nothing"
