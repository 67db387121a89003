"""What the gate asks, and tells, the rest of the agent."""

from __future__ import annotations

import enum
from typing import Protocol

from trainer_sidecar.agent.frames import Message
from trainer_sidecar.agent.listener import ListenerRules


class LinkPhase(enum.Enum):
    """How far a rank's newest link is."""

    NONE = "none"
    AT_GATE = "at gate"
    LINKED = "linked"


class Rules(ListenerRules, Protocol):
    """What the gate asks, and tells, the rest of the agent."""

    def may_pass(self, rank: int) -> bool:
        """Whether this rank's bytes may pass now."""

    def is_local(self, rank: int) -> bool:
        """Whether this pod has that rank."""

    def may_answer(self) -> bool:
        """Whether a rank of this pod that has died may be answered for now."""

    def controller_address(self) -> str:
        """host:port of the MindIO controller, empty while there is none."""

    def controller(self) -> str:
        """Which controller process that is, empty: not told."""

    def process(self, rank: int) -> str:
        """Names the rank's present process."""

    def is_over(self) -> bool:
        """Whether this pod's ranks are to end."""

    def is_repaired(self) -> bool:
        """Whether what ranks have repaired for a former controller is not to be repaired again."""

    def word_for(self, rank: int) -> Message | None:
        """What the former controller has told other ranks, and this one is to be told as well; None: nothing."""

    def stand_ins(self) -> frozenset[int]:
        """Ranks without a process that the controller may be told of now."""

    def link_changed(self, rank: int) -> None:
        """A link of this rank was opened, linked or closed; or the controller knows the rank now."""

    def heartbeat(self, rank: int, step: int | None, *, asked: bool) -> None:
        """The rank has said that it lives, and how many steps it has finished (None: it did not say).

        `asked`: in its answer to an action, at the moment of a stop.
        """

    def copies(self, rank: int, *, told: bool) -> None:
        """At each heartbeat of a link on which the rank registered: whether it told MindIO of its copies."""

    def tls_spoken(self, rank: int | None) -> None:
        """A process of this pod opened a connection with a TLS handshake; None: before it said which rank it is."""

    def silent(self, rank: int, since: int) -> None:
        """A linked rank has said nothing since then, although it could."""
