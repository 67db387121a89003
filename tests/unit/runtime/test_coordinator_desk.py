"""What a desk knows of its coordinator when a report comes in."""

from __future__ import annotations

from typing import Any, cast

from hajob.api.job import HATrainingJob
from hajob.plan.events import CheckpointVerified
from hajob.plan.state import JobState
from hajob.runtime.coordinator_desk import CoordinatorDesk
from hajob.runtime.world import World
from trainer_sidecar.protocol import sidecar_pb2 as wire


class Owner:
    """A desk that looks at its coordinator when it hears a report, as the planner does."""

    def __init__(self) -> None:
        self.desk = CoordinatorDesk(cast("HATrainingJob", None), cast("World", None), self)
        self.seen: list[tuple[bool, int]] = []
        self.changes: list[Any] = []

    def reported(self, report: wire.Report) -> None:
        assert report
        self.seen.append((self.desk.serving, self.desk.step))

    def coordinator_changed(self) -> None:
        self.changes.append(self.desk.connected)


def test_a_fact_in_the_first_report_is_judged_by_the_state_in_that_report() -> None:
    owner = Owner()
    owner.desk.connected_changed(True, "")
    owner.desk.reported(wire.Report(sequence=1, state=wire.CoordinatorState(controller_ready=True, step=41)))
    assert owner.seen == [(True, 41)]


def report_of(**found: Any) -> wire.Report:
    checkpoint = wire.CheckpointState(**found)
    return wire.Report(state=wire.CoordinatorState(attempt=1, checkpoint=checkpoint))


def test_what_an_attempt_loads_is_told_once_and_only_of_that_attempt() -> None:
    desk = Owner().desk
    told = report_of(attempt=1, loaded_step=20, refused=[wire.RefusedCheckpoint(name="x", reason="y")], num_refused=1)
    assert desk.newly_loaded(told, 2) is None
    found = desk.newly_loaded(told, 1)
    assert found is not None
    assert (found.step, found.refused[0].name, found.num_refused) == (20, "x", 1)
    assert desk.newly_loaded(told, 1) is None
    assert desk.newly_loaded(report_of(attempt=0, loaded_step=-1), 0) is None


def test_a_checkpoint_is_news_when_it_is_newer_than_one_that_was_known() -> None:
    owner = Owner()

    def heard(**found: Any) -> list[Any]:
        report = report_of(**found) if found else wire.Report(state=wire.CoordinatorState(attempt=1))
        owner.desk.reported(report)
        return [event for event in owner.desk.events_of(report, JobState()) if isinstance(event, CheckpointVerified)]

    assert (heard(), owner.desk.checkpoint_step) == ([], None)
    assert (heard(step=20, tracked=True), owner.desk.checkpoint_step) == ([], 20)
    assert [event.step for event in heard(step=40, tracked=True)] == [40]
    assert heard(step=40, tracked=True) == []
    assert (heard(step=40, tracked=False), owner.desk.checkpoint_step) == ([], -1)
    assert (heard(step=40, problem="read-only"), owner.desk.checkpoint_step) == ([], None)
