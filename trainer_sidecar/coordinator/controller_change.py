"""How far the change from a lost MindIO controller to another one is.

Only this module changes it; successor.py leads it on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trainer_sidecar.coordinator.conversation import MindIOEvent

LAST_SERIAL = 20_000
"""MindIO numbers its actions up to this one, whichever controller gives them, and fails all of them afterwards."""


class ChangePhase(StrEnum):
    """What is waited for."""

    NONE = "none"
    HOLDING = "holding"  # every gate has let go of the former controller
    OPENING = "opening"  # another one serves, wound on
    REGISTERING = "registering"  # it knows every rank


@dataclass(slots=True)
class ControllerChange:
    """One change at a time. Times in seconds."""

    phase: ChangePhase = ChangePhase.NONE
    since: float = 0.0
    former: str = ""  # the controller that was lost
    absent: frozenset[int] = frozenset()  # ranks that the new one is told of without a process
    stand_ins: Mapping[int, str] = field(default_factory=dict)  # rank -> UID of the pod whose agent tells of it
    late: int = 0  # place of the pod that was not through when they were last asked
    looked: float = 0.0  # when it was last looked for who has no process
    serves_since: float = 0.0  # the new one
    heard: list[tuple[MindIOEvent, float]] = field(default_factory=list)
    serial: int = 0  # the highest that any rank has seen
    counter: int = 0
    word: bytes = b""  # what the former controller was telling all ranks
    untold: frozenset[int] = frozenset()  # who has not had it, and is told now
    asked: bool = False
    repaired: bool = False  # what was repaired for the former controller counts
    adopted: bool = False  # this coordinator does not know what the former controller was told
    paused: bool = False  # ranks are held at the end of a step
    saves: str = ""  # why no repair can end any more, what the ranks have is saved; empty: it can
    trains: bool = False  # no repair was under way, or it was through
    smaller: bool = False  # ranks have been left out, which the other one is still to be told
    undone: tuple[int, int] = (0, 0)  # number and revision of an order that the other controller is not asked for

    @property
    def is_under_way(self) -> bool:
        """Whether ranks run that no controller knows."""
        return self.phase is not ChangePhase.NONE

    @property
    def may_connect(self) -> bool:
        """Whether gates may open links: not before the new controller is wound on."""
        return self.phase in (ChangePhase.NONE, ChangePhase.REGISTERING)

    @property
    def problem(self) -> str:
        """For a person; empty: there is none."""
        if not self.is_under_way:
            return ""
        return f"the MindIO controller was lost, another one takes over ({self.phase}); the training goes on"

    def waits_for(self, place: int) -> None:
        """The pod at this place is asked first."""
        self.late = place

    def has_looked(self, now: float) -> None:
        """Who has no process is known now."""
        self.looked = now

    def leaves_undone(self, incarnation: int, revision: int) -> None:
        """What it orders cannot be done by the other controller either."""
        self.undone = incarnation, revision

    def is_over(self, instance: str) -> bool:
        """Whether the loss of this controller is known."""
        return self.is_under_way and instance == self.former

    def saw(self, serial: int, counter: int) -> None:
        """A gate has told what its ranks have seen."""
        self.serial, self.counter = max(self.serial, serial), max(self.counter, counter)

    def begin(self, former: str, now: float, *, adopted: bool = False) -> None:
        """The controller is lost."""
        self.repaired = self.paused = self.trains = self.smaller = False
        self.saves = ""
        self.word, self.untold = b"", frozenset()
        self.adopted = adopted
        self.phase, self.since, self.former = ChangePhase.HOLDING, now, former
        self.asked, self.heard, self.absent, self.stand_ins = False, [], frozenset(), {}

    def again(self, former: str) -> None:
        """The new one is lost as well, before it was in service."""
        self.phase, self.former, self.asked, self.heard = ChangePhase.HOLDING, former, False, []

    def tells(self, word: bytes, ranks: frozenset[int]) -> None:
        """These ranks are to have what the former controller was telling all."""
        self.word, self.untold = word, ranks

    def opens(self, *, trains: bool, repaired: bool, paused: bool, saves: str = "") -> None:
        """No gate has a link to the former one, and it is known how far the ranks are."""
        self.phase, self.trains, self.repaired, self.paused = ChangePhase.OPENING, trains, repaired, paused
        self.saves = saves

    def leaves_out(self) -> None:
        """Ranks that were left out are left out again."""
        self.smaller = True

    def has_left_out(self) -> None:
        """The other one knows who takes part."""
        self.smaller = False

    def ask(self) -> None:
        """A controller was asked for."""
        self.asked = True

    def registers(self, now: float) -> None:
        """The new one serves."""
        self.phase, self.absent, self.looked, self.serves_since = ChangePhase.REGISTERING, frozenset(), 0.0, now

    def lacks(self, absent: Iterable[int], stand_ins: Mapping[int, str]) -> None:
        """These ranks have no process, or none that it may know; who tells of them."""
        self.absent, self.stand_ins = frozenset(absent), dict(stand_ins)

    def stand_ins_at(self, pod_uid: str) -> list[int]:
        """Ranks that this pod's agent makes known."""
        return sorted(rank for rank, uid in self.stand_ins.items() if uid == pod_uid)

    def hear(self, event: MindIOEvent, at: float) -> bool:
        """Keep what the new controller says before everybody is known to it; False: only the former one can have."""
        if self.phase is not ChangePhase.REGISTERING:
            return False
        self.heard.append((event, at))
        return True

    def end(self) -> list[tuple[MindIOEvent, float]]:
        """It is in service, or given up; what it has said meanwhile."""
        heard, self.heard = self.heard, []
        self.phase, self.stand_ins, self.absent = ChangePhase.NONE, {}, frozenset()
        return heard

    def forget(self) -> None:
        """Another start of the job: its ranks have seen nothing."""
        self.end()
        self.smaller = False
        self.serial = self.counter = 0
