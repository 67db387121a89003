"""Effects: work that a transition leaves to the shell.

The shell may carry out an effect before the state is recorded, and any number of times. What cannot be repeated is
no effect: the shell makes and deletes pods until they match the state (hajob.plan.placements), once the write of
that state has been acknowledged.
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
    """Newest order for the coordinator; a higher (incarnation, revision) replaces it."""

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
    """New cause of the incident's entry: a later fact explains it."""

    number: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class CloseIncident(Effect):
    """End of the incident's entry."""

    number: int
    outcome: IncidentOutcome
    message: str = ""


@dataclass(frozen=True, slots=True)
class Announce(Effect):
    """Event to post; it changes nothing by itself.

    Attributes:
        reason: of the Event.
        message: a sentence.
    """

    reason: EventReason
    message: str


@dataclass(frozen=True, slots=True)
class FailJob(Effect):
    """Permanent failure of the job; the shell ends its pods and coordinator."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class CompleteJob(Effect):
    """Completion of the job; the shell ends the coordinator and keeps finished pods."""
