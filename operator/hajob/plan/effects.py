"""What a transition asks the shell to do.

Two kinds, told apart by `irreversible`. A *repeatable* effect may be done before anything is recorded and any number
of times. An *irreversible* one is done only after a status write that holds the new state has been acknowledged; an
operator killed between the two does it again from the status, so every irreversible effect is also idempotent for
the same incarnation (pods are named after it).
"""

from dataclasses import dataclass
from typing import ClassVar

from hajob.domain.actions import OrderCommand
from hajob.domain.incidents import IncidentOutcome


@dataclass(frozen=True, slots=True)
class Effect:
    """Base of all effects."""

    irreversible: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class SendOrder(Effect):
    """Repeatable: make this the newest order of the coordinator. A higher (incarnation, revision) replaces it."""

    command: OrderCommand
    incarnation: int
    revision: int
    lost_ranks: tuple[int, ...] = ()
    restart_ranks: tuple[int, ...] = ()
    replaced_nodes: tuple[int, ...] = ()
    parameters: str = ""
    timeout_seconds: int = 0


@dataclass(frozen=True, slots=True)
class ReplacePods(Effect):
    """Irreversible: delete the pods of these node ranks and create new ones of this incarnation elsewhere."""

    irreversible: ClassVar[bool] = True
    node_ranks: tuple[int, ...]
    incarnation: int
    avoid_node_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateSparePods(Effect):
    """Repeatable: create second pods for these node ranks beside the running ones (same name: already there)."""

    node_ranks: tuple[int, ...]
    incarnation: int
    avoid_node_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleasePods(Effect):
    """Irreversible: delete the pods of these node ranks of an incarnation from `not_below` up to, without, `below`."""

    irreversible: ClassVar[bool] = True
    node_ranks: tuple[int, ...]
    below: int
    not_below: int = 0


@dataclass(frozen=True, slots=True)
class DeleteAllPods(Effect):
    """Irreversible: delete every rank pod of a lower incarnation than `below`."""

    irreversible: ClassVar[bool] = True
    below: int


@dataclass(frozen=True, slots=True)
class CreateAllPods(Effect):
    """Repeatable: create every rank pod of this incarnation and attempt that does not exist yet."""

    attempt: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class DeleteCoordinator(Effect):
    """Irreversible: delete the coordinator pod of a lower incarnation than `below`."""

    irreversible: ClassVar[bool] = True
    below: int


@dataclass(frozen=True, slots=True)
class CreateCoordinator(Effect):
    """Repeatable: create the coordinator pod of this incarnation."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class CloseIncident(Effect):
    """Repeatable: the entry is finished."""

    number: int
    outcome: IncidentOutcome
    message: str = ""


@dataclass(frozen=True, slots=True)
class Announce(Effect):
    """Repeatable: tell people (condition, Event) something that changes nothing by itself.

    Attributes:
        reason: CamelCase, for conditions and Events.
        message: a sentence.
    """

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class FailJob(Effect):
    """Irreversible: the job has failed for good; pods and coordinator are ended."""

    irreversible: ClassVar[bool] = True
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class CompleteJob(Effect):
    """Irreversible: the job is complete; the coordinator is ended, finished pods stay."""

    irreversible: ClassVar[bool] = True
