"""Events that a test hands to a job's controller, as the job's policies do."""

from __future__ import annotations

from hajob.plan import events
from tests.rigs.job_controller import ControllerTown


def tell(town: ControllerTown, *told: events.JobEvent) -> None:
    """Hand events to the table, by the door of the policies."""
    town.controller.apply_seen(told)
