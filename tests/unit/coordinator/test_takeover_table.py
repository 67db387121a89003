"""The table of the takeover by another controller, walked whole: every phase, every event, every guard."""

from __future__ import annotations

import inspect
from itertools import chain, product

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from trainer_sidecar.coordinator.state.controller_change import ChangePhase
from trainer_sidecar.coordinator.takeover import effects, guards, table
from trainer_sidecar.coordinator.takeover.guards import TAKEOVER_SECONDS
from trainer_sidecar.coordinator.takeover.table import TABLE, UNDER_WAY, TakeoverEvent

ROWS = list(chain.from_iterable(TABLE.values()))
P, E = ChangePhase, TakeoverEvent


def moved(phase: ChangePhase) -> World:
    """A job whose ranks train, as if a takeover stood in this phase."""
    world = World()
    world.gates_know = True
    world.train(3)
    change = world.core.job.change
    if phase is not P.NONE:
        world.core.job.set_time(world.now)
        table.handle_event(world.core.job, E.LOST, "signal 9")
    change.enter_phase(phase)
    return world


@pytest.mark.parametrize(("phase", "event"), list(product(UNDER_WAY, E)))
def test_every_phase_under_way_has_its_way_out(phase: ChangePhase, event: TakeoverEvent) -> None:
    """A loss, the end of the container and the time limit are answered wherever the takeover stands."""
    if event in (E.ADOPTED, E.MOVE_GIVEN_UP):
        assert (phase, event) not in TABLE, "nobody begins what is under way"
        return
    rows = TABLE[phase, event]
    ends = [row for row in rows if row.following is P.NONE]
    assert ends
    if event is E.LOOK:
        assert [row.guard for row in rows[:2]] == [guards.steps_are_over, guards.is_takeover_overdue], (
            "before anything else"
        )
    else:
        assert rows[-1].guard is guards.always_applies, "no such event is lost"


@pytest.mark.parametrize("phase", UNDER_WAY)
@pytest.mark.parametrize("event", [E.LOST, E.CONTAINER_ENDED, E.LOOK])
@pytest.mark.parametrize("possible", [True, False])
@pytest.mark.parametrize("when", ["in time", "overdue", "after the last step"])
def test_every_cell(phase: ChangePhase, event: TakeoverEvent, when: str, *, possible: bool) -> None:
    """No cell leaves a job half taken over, and whoever is not protected hears why."""
    world = moved(phase)
    job, change = world.core.job, world.core.job.change
    if not possible:
        for pod in job.roster.pods.values():
            assert pod.gate is not None
            pod.gate.unreadable = True
    job.set_time(change.since + TAKEOVER_SECONDS if when == "overdue" else world.now)
    if when == "after the last step":
        job.attempt.note_last_step_over(job.now)
    if event is E.LOOK:
        table.advance_table(job)
    else:
        table.handle_event(job, event, "signal 9")
    report = world.core.next_report(job.now)
    facts = [fact.message for fact in report.facts if fact.kind == pb.CONTROLLER_LOST]
    in_service = pb.TAKEN_OVER in [milestone.kind for milestone in report.milestones]
    assert change.phase is not P.DECIDING, "decided at once"
    if event is E.LOOK:
        assert (change.is_under_way or in_service) is (when == "in time")
        assert bool(facts) is (when == "overdue"), facts
    else:
        goes_on = event is E.LOST and possible and when != "after the last step"
        assert change.phase is (P.HOLDING if goes_on else P.NONE)
        assert bool(facts) is not goes_on
    assert change.may_connect is (change.phase in (P.NONE, P.REGISTERING))


@pytest.mark.parametrize("event", E)
def test_every_cell_at_rest(event: TakeoverEvent) -> None:
    """Each beginning begins, and a look begins nothing."""
    world = moved(P.NONE)
    job = world.core.job
    if event is E.LOOK:
        table.advance_table(job)
    else:
        table.handle_event(job, event, "signal 9")
    assert job.change.is_under_way is (event in (E.LOST, E.ADOPTED, E.MOVE_GIVEN_UP))


def test_a_row_that_can_be_taken_is_not_hidden() -> None:
    for rows in TABLE.values():
        stays = [row.following is row.phase for row in rows]
        plain = [number for number, row in enumerate(rows) if row.guard is guards.always_applies and not stays[number]]
        assert plain in ([], [len(rows) - 1]), "nothing stands below a row that always leaves"


def test_every_phase_is_reached_and_left() -> None:
    assert {row.following for row in ROWS} == {row.phase for row in ROWS} == set(P)


def test_links_open_only_after_the_new_counters_are_raised() -> None:
    """Gates may connect in REGISTERING, which is entered only from OPENING when the one that was asked for serves."""
    (row,) = [row for row in ROWS if row.following is P.REGISTERING and row.phase is not P.REGISTERING]
    assert (row.phase, row.guard) == (P.OPENING, guards.another_one_serves)


def test_each_guard_and_effect_stands_in_a_row() -> None:
    used = {row.guard for row in ROWS} | {row.effect for row in ROWS}
    told = {one for one in used if one.__doc__}
    assert told == used
    arguments = {("_job",): guards, ("job",): guards, ("job", "_text"): effects, ("job", "text"): effects}
    for module in (guards, effects):
        for name, one in vars(module).items():
            if inspect.isfunction(one) and one.__module__ == module.__name__ and not name.startswith("_"):
                takes = tuple(inspect.signature(one).parameters)
                assert one in used or arguments.get(takes) is not module, name
