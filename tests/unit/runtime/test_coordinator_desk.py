"""What a desk knows of its coordinator when a report comes in."""

from __future__ import annotations

from typing import Any, cast

from hajob.api.job import HATrainingJob
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
