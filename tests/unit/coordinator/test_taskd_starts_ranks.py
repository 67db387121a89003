"""TaskD starts the ranks: what the coordinator asks of MindIO earlier, and which steps stand for a lost result."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import ENDPOINT, World
from trainer_sidecar.coordinator.core import CoordinatorCore
from trainer_sidecar.coordinator.state.job import Limits, Setup
from trainer_sidecar.coordinator.watch.lost_results import PATIENCE_SECONDS


@pytest.fixture
def followed() -> World:
    """A job whose ranks TaskD has started, and that trains."""
    world = World()
    world.core = CoordinatorCore(Setup(ENDPOINT, Limits(), is_followed=True), world.now)
    world.start()
    world.step(1)
    return world


def test_gates_lead_to_the_pod_of_node_rank_0(followed: World) -> None:
    agent = followed.agent(1)
    assert agent.order is not None
    first = followed.core.job.roster.pods_of_node(0)[0]
    assert first.address != ENDPOINT.address
    assert agent.order.controller_address == f"{first.address}:8000"
    assert agent.order.store_address == ""


def test_a_rank_in_place_is_named_before_it_comes(followed: World) -> None:
    followed.die(3)
    assert followed.called("stop_train")
    followed.agent(1).start_delay = 60.0
    followed.order(pb.IN_PLACE, incarnation=2, revision=1, lost_ranks=[3], restart_ranks=[3])
    followed.advance(0.2)
    assert followed.called("on_global_rank") == [{"ranks": [[3, 1]], "time": 1}]
    assert followed.called("change_strategy") == [{"strategy": "recover", "parameters": "", "in_place": [3]}]


def test_a_result_that_does_not_come_is_shown_by_steps(followed: World) -> None:
    followed.die(3)
    followed.order(pb.IN_PLACE, incarnation=2, revision=1, lost_ranks=[3], restart_ranks=[3])
    followed.advance(0.2)
    followed.step(2)
    assert followed.state.conversation == "Confirming"
    followed.advance(PATIENCE_SECONDS / 2)
    assert followed.state.conversation == "Confirming"
    followed.advance(PATIENCE_SECONDS)
    assert followed.state.conversation == "Serving"
    (result,) = followed.marks(pb.RESULT)
    assert (result.result_code, result.strategy) == (0, "recover")


def test_a_lost_manager_has_no_successor(followed: World) -> None:
    followed.lose_controller("the TaskD manager is gone")
    (fact,) = followed.facts
    assert (fact.kind, fact.code) == (pb.CONTROLLER_LOST, "NoSuccessor")
    assert "another one knows none of TaskD's agents" in fact.message


def test_work_is_asked_for_once_every_rank_waits(followed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    works, of_mindio = [], followed.mindio.call

    def take_call(name: str, arguments: dict[str, object], order: int) -> None:
        if name == "work":
            works.append(arguments)
        else:
            of_mindio(name, arguments, order)

    monkeypatch.setattr(followed.mindio, "call", take_call)
    work = '{"request": "r1", "stress": {"0": [0]}}'
    followed.pause_work = work
    followed.assign()
    assert not works
    followed.order(pb.PAUSE, incarnation=2, revision=1, timeout_seconds=60)
    followed.advance(1.0)
    assert works == [{"work": {"request": "r1", "stress": {"0": [0]}}}]
    followed.core.apply_pause_result({"request": "r1", "codes": {"0": "2"}}, followed.now)
    followed.pump()
    assert followed.state.pause_result == '{"codes": {"0": "2"}, "request": "r1"}'
