"""Input that makes no sense is refused, counted, and changes nothing."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from trainer_sidecar.coordinator.conversation.callbacks import parse_callback
from trainer_sidecar.coordinator.shell.settings import read_settings
from trainer_sidecar.coordinator.state.effects import KEPT_ITEMS, ReportOutbox
from trainer_sidecar.environment import SettingsError


@pytest.fixture
def world() -> World:
    world = World()
    world.start()
    return world


@pytest.mark.parametrize(
    "assignment",
    [
        pb.Assignment(revision=0, world_size=4, ranks_per_node=2),
        pb.Assignment(revision=9, world_size=0, ranks_per_node=2),
        pb.Assignment(revision=9, world_size=4, ranks_per_node=0),
        pb.Assignment(revision=9, world_size=4, ranks_per_node=2, pods=[pb.RankPod(node_rank=2, pod_uid="x")]),
        pb.Assignment(revision=9, world_size=4, ranks_per_node=2, pods=[pb.RankPod(node_rank=1)]),
    ],
)
def test_an_assignment_that_cannot_be_followed(world: World, assignment: pb.Assignment) -> None:
    before = world.core.job.assignment
    world.core.apply_assignment(assignment, world.now)
    assert world.core.job.assignment is before
    assert world.core.job.effects.refused_inputs == 1


@pytest.mark.parametrize(
    "order",
    [
        pb.Order(incarnation=2, action=pb.IN_PLACE, lost_ranks=[99], restart_ranks=[99], replaced_nodes=[77]),
        pb.Order(incarnation=2, action=pb.ACTION_UNSPECIFIED, lost_ranks=[1]),
        pb.Order(incarnation=2, action=pb.RETRY),
    ],
)
def test_an_order_about_nothing_tells_mindio_nothing(world: World, order: pb.Order) -> None:
    world.core.apply_order(order, world.now)
    world.advance(1.0)
    assert not world.mindio.calls
    world.die(3)
    assert len(world.called("stop_train")) == 1


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("report_fault_ranks", []),
        ("report_fault_ranks", [5, 6]),
        ("report_stop_complete", [0, "ok"]),
        ("report_strategies", [[]]),
        ("report_result", [0]),
        ("nonsense", []),
    ],
)
def test_a_callback_of_another_shape(world: World, name: str, arguments: list[object]) -> None:
    assert parse_callback(name, arguments) is None
    world.core.apply_callback(name, arguments, world.now, world.now)
    assert world.core.job.effects.refused_inputs == 1
    assert world.core.job.conversation.state == "Serving"


def test_what_agents_say_that_nobody_knows_is_dropped(world: World) -> None:
    world.core.apply_agent_report("stranger", pb.AgentReport(), world.now)
    assert world.core.answer_heartbeat("stranger", 1, world.now) is None
    world.core.note_connected_agent("stranger", world.now)
    world.core.note_disconnected_agent("stranger", world.now, refused=True)


def test_an_exit_of_a_former_process_is_no_loss(world: World) -> None:
    agent = world.agent(1)
    fact = pb.Fact(id="old", kind=pb.PROCESS_EXITED, ranks=[3], incarnation=0, exit_code=-9)
    world.core.apply_agent_report(agent.uid, agent.report([fact]), world.now)
    world.pump()
    assert not world.facts
    assert not world.mindio.calls


@pytest.mark.parametrize(("unexplained", "told"), [(False, ["late"]), (True, [])])
def test_a_late_end_is_told_only_where_it_tells_why(world: World, unexplained: bool, told: list[str]) -> None:
    agent = world.agent(1)
    world.order(pb.STOP, incarnation=2, revision=1)
    fact = pb.Fact(id="late", kind=pb.PROCESS_EXITED, ranks=[3], incarnation=1, unexplained=unexplained)
    world.core.apply_agent_report(agent.uid, agent.report([fact]), world.now)
    world.pump()
    assert [each.id for each in world.facts] == told


def test_the_outbox_repeats_until_acknowledged_and_is_bounded() -> None:
    outbox = ReportOutbox()
    assert outbox.add_fact(pb.Fact(id="a"), 1.0)
    assert not outbox.add_fact(pb.Fact(id="a"), 2.0), "the same observation"
    first = outbox.next_report(pb.CoordinatorState(), 3.0)
    assert (first.facts[0].age_nanoseconds, first.sequence) == (2_000_000_000, 1)
    assert not outbox.next_report(pb.CoordinatorState(), 3.0).facts
    outbox.resend_unacknowledged()
    again = outbox.next_report(pb.CoordinatorState(), 4.0)
    assert (again.facts[0].id, again.facts[0].age_nanoseconds) == ("a", 3_000_000_000)
    outbox.acknowledge_reports(again.sequence - 1)
    outbox.resend_unacknowledged()
    last = outbox.next_report(pb.CoordinatorState(), 4.0)
    assert last.facts, "an old acknowledgement takes nothing newer"
    outbox.acknowledge_reports(last.sequence)
    outbox.resend_unacknowledged()
    assert not outbox.next_report(pb.CoordinatorState(), 4.0).facts
    for number in range(KEPT_ITEMS + 5):
        outbox.add_milestone(pb.Milestone(step=number), 5.0)
    assert len(outbox.next_report(pb.CoordinatorState(), 6.0).milestones) == KEPT_ITEMS


GOOD = {
    "POD_IP": "10.0.0.1",
    "POD_NAME": "c",
    "POD_UID": "u",
    "HAJOB_DIR": "/hajob",
    "HAJOB_TLS_DIR": "/tls",
    "HAJOB_JOB_UID": "j",
    "MINDIO_WAIT_MINDX_TIME": "120",
}


def test_settings_have_defaults_and_name_what_is_wrong() -> None:
    settings = read_settings(GOOD)
    assert (settings.port, settings.agent_port, settings.endpoint.controller_address) == (7070, 7071, "10.0.0.1:8000")
    assert settings.limits.answer_seconds == 118.0
    for name in GOOD:
        with pytest.raises(SettingsError, match=name):
            read_settings({key: value for key, value in GOOD.items() if key != name})
    with pytest.raises(SettingsError, match="HAJOB_AGENT_PORT='x'"):
        read_settings({**GOOD, "HAJOB_AGENT_PORT": "x"})


def test_an_older_order_is_told_a_repeated_one_is_not(world: World) -> None:
    world.order(pb.PAUSE, incarnation=2, revision=1)
    world.order(pb.PAUSE, incarnation=2, revision=1)
    assert world.state.refused_inputs == 0
    world.order(pb.CONTINUE, incarnation=1, revision=9)
    assert world.state.refused_inputs == 1
