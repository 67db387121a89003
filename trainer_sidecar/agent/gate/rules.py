"""The interface of the gates, to MindIO and to the store, to the rest of the agent."""

from __future__ import annotations

import enum
from typing import Protocol

from trainer_sidecar.agent.gate.frames import Message


class LinkPhase(enum.Enum):
    """How far a rank's newest link is."""

    NONE = "none"
    AT_GATE = "at gate"
    LINKED = "linked"


class Rules(Protocol):
    """What both gates ask of the agent, and what they tell it: a port, so that a test decides what may pass."""

    def may_pass(self, rank: int) -> bool:
        """Return whether this rank's bytes may pass now."""

    def is_local(self, rank: int) -> bool:
        """Return whether this pod has that rank."""

    def may_answer_for_dead(self) -> bool:
        """Return whether the gate may reply for a dead rank of this pod now."""

    def controller_address(self) -> str:
        """Return host:port of the MindIO controller, empty while there is none."""

    def controller_name(self) -> str:
        """Return the name of that controller process, empty: not told."""

    def process_name(self, rank: int) -> str:
        """Return the name of the rank's present process."""

    def is_incarnation_over(self) -> bool:
        """Return whether this pod's ranks are to end."""

    def is_already_repaired(self) -> bool:
        """Return whether repairs that ranks made for a former controller must not be repeated."""

    def missed_action_of(self, rank: int) -> Message | None:
        """Return the action that the former controller gave to other ranks and not to this one; None: nothing."""

    def steps_ahead(self) -> int:
        """Return how many steps more MindIO is told where it asks how far the ranks are."""

    def ranks_to_stand_in_for(self) -> frozenset[int]:
        """Return the ranks without a process that the controller may be told of now."""

    def note_link_change(self, rank: int) -> None:
        """Note that a link of this rank was opened, linked or closed, or that the controller knows the rank now."""

    def apply_heartbeat(self, rank: int, step: int | None, *, asked: bool) -> None:
        """Take a heartbeat of the rank and its number of finished steps (None: it did not say).

        `asked`: in its reply to an action, at the moment of a stop.
        """

    def note_optimizer_copies(self, rank: int, *, told: bool) -> None:
        """Note, at each heartbeat of a link on which the rank registered, whether it told MindIO of its copies."""

    def report_tls(self, rank: int | None) -> None:
        """Note that a process of this pod began a TLS handshake; None: before it said which rank it is."""

    def report_silent_rank(self, rank: int, since: int) -> None:
        """Report that a linked rank has sent nothing since then, although it could."""

    def report_taken_port(self, port: int, problem: OSError) -> None:
        """Report that a gate can't listen on its port."""

    def report_foreign_connection(self, port: int, host: str) -> None:
        """Report that a connection from outside of this pod is held."""

    def may_reach_store(self) -> bool:
        """Return whether the processes of this pod may reach the rendezvous store now."""

    def store_address(self) -> str:
        """Return host:port of the rendezvous store, empty while there is none."""

    def store_name(self) -> str:
        """Return the name of that store: attempt, "/" and who opened it; empty: not told."""

    def is_store_kept(self) -> bool:
        """Return whether the store was filled with the content of the store before it."""
