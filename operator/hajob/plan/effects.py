"""What a transition asks the shell to do.

Each may be done before anything is recorded, and any number of times. What cannot be repeated is no effect: pods are
made and deleted until they are those of the state (hajob.plan.placements), once the write that holds it has been
acknowledged.
"""

from dataclasses import dataclass

from hajob.api.event_reasons import EventReason
from hajob.domain.actions import OrderCommand
from hajob.domain.incidents import Cause, IncidentOutcome


@dataclass(frozen=True, slots=True)
class Effect:
    """Base of all effects."""


@dataclass(frozen=True, slots=True)
class SendOrder(Effect):
    """Make this the newest order of the coordinator. A higher (incarnation, revision) replaces it."""

    command: OrderCommand
    incarnation: int
    revision: int
    lost_ranks: tuple[int, ...] = ()
    restart_ranks: tuple[int, ...] = ()
    replaced_nodes: tuple[int, ...] = ()
    parameters: str = ""
    timeout_seconds: int = 0


@dataclass(frozen=True, slots=True)
class ExplainIncident(Effect):
    """The entry has another cause: a later fact tells why."""

    number: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class CloseIncident(Effect):
    """The entry is finished."""

    number: int
    outcome: IncidentOutcome
    message: str = ""


@dataclass(frozen=True, slots=True)
class Announce(Effect):
    """Post an Event; it changes nothing by itself.

    Attributes:
        reason: of the Event.
        message: a sentence.
    """

    reason: EventReason
    message: str


@dataclass(frozen=True, slots=True)
class FailJob(Effect):
    """The job has failed for good; pods and coordinator are ended."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class CompleteJob(Effect):
    """The job is complete; the coordinator is ended, finished pods stay."""
