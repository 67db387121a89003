"""The progress of the change from a lost MindIO controller to another one.

Only this module changes it, called by the rows of takeover/table.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trainer_sidecar.coordinator.conversation.conversation import MindIOEvent

LAST_SERIAL = 20_000
"""The highest serial that MindIO gives to actions, counted over all controllers; it fails every action after that."""


class ChangePhase(StrEnum):
    """Phases of a change, each named by what it waits for."""

    NONE = "none"
    HOLDING = "holding"  # every gate releases the former controller, and every rank comes to rest
    DECIDING = "deciding"  # whether another controller can go on from there; passed through at once
    OPENING = "opening"  # another controller serves, its counters raised
    REGISTERING = "registering"  # the new controller learns every rank


@dataclass(slots=True)
class ControllerChange:
    """State of the change in progress; there is one at a time. Times in seconds."""

    phase: ChangePhase = ChangePhase.NONE
    since: float = 0.0
    former: str = ""  # the controller that was lost
    absent: frozenset[int] = frozenset()  # ranks that are registered without a process
    stand_ins: Mapping[int, str] = field(default_factory=dict)  # rank -> UID of the pod whose agent registers it
    late: int = 0  # place of the pod that failed the last check of all pods
    looked: float = 0.0  # time of the last search for ranks without a process
    serves_since: float = 0.0  # since when the new controller serves
    heard: list[tuple[MindIOEvent, float]] = field(default_factory=list)
    serial: int = 0  # the highest serial that any rank has seen
    counter: int = 0
    word: bytes = b""  # the action that the former controller was sending to all ranks
    untold: frozenset[int] = frozenset()  # ranks that have not received it, and get it now
    asked: bool = False
    repaired: bool = False  # repairs of the former controller stay valid
    adopted: bool = False  # this coordinator does not know the former controller's conversation
    paused: bool = False  # ranks wait at the end of a step
    impossible: str = ""  # why no other controller can go on
    saves: str = ""  # why no repair can end any more, so that the ranks' state is saved; empty: one can
    trains: bool = False  # no repair was under way, or it had ended
    smaller: bool = False  # ranks were left out, and the new controller does not know that yet
    undone: tuple[int, int] = (0, 0)  # (number, revision) of an order that the new controller does not get

    @property
    def is_under_way(self) -> bool:
        """Whether running ranks are not registered with any controller."""
        return self.phase is not ChangePhase.NONE

    @property
    def may_connect(self) -> bool:
        """Whether gates may open links: only once the new controller's counters are raised."""
        return self.phase in (ChangePhase.NONE, ChangePhase.REGISTERING)

    @property
    def change_problem(self) -> str:
        """Return the problem in words for a person; empty when there is none."""
        if not self.is_under_way:
            return ""
        return f"the MindIO controller was lost, another one takes over ({self.phase}); the training goes on"

    def enter_phase(self, phase: ChangePhase) -> None:
        """Change the phase, as a row of the table says."""
        self.phase = phase

    def start_next_check_at(self, place: int) -> None:
        """Remember the place of the pod that the next check starts with."""
        self.late = place

    def note_search_time(self, now: float) -> None:
        """Note the time of the search for ranks without a process."""
        self.looked = now

    def note_undone_order(self, incarnation: int, revision: int) -> None:
        """Note the order that the other controller cannot carry out either."""
        self.undone = incarnation, revision

    def is_loss_known(self, instance: str) -> bool:
        """Return whether the loss of this controller is known."""
        return self.is_under_way and instance == self.former

    def note_gate_counters(self, serial: int, counter: int) -> None:
        """Take in the highest serial and counter that a gate reports for its ranks."""
        self.serial, self.counter = max(self.serial, serial), max(self.counter, counter)

    def begin_change(self, former: str, now: float, *, adopted: bool = False) -> None:
        """Begin a change: the controller `former` is lost."""
        self.repaired = self.paused = self.trains = self.smaller = False
        self.saves = self.impossible = ""
        self.word, self.untold = b"", frozenset()
        self.adopted = adopted
        self.since, self.former = now, former
        self.asked, self.heard, self.absent, self.stand_ins = False, [], frozenset(), {}

    def restart_change(self, former: str) -> None:
        """Begin anew: the new controller is lost as well, before it was in service."""
        self.former, self.asked, self.heard = former, False, []

    def complete_word(self, word: bytes, ranks: frozenset[int]) -> None:
        """Have the gates send these ranks the action that the former controller was sending to all."""
        self.word, self.untold = word, ranks

    def note_rank_progress(self, *, trains: bool, repaired: bool, paused: bool, saves: str, impossible: str) -> None:
        """Note how far the ranks are, now that no gate has a link to the former controller."""
        self.trains, self.repaired, self.paused = trains, repaired, paused
        self.saves, self.impossible = saves, impossible

    def note_leaving_out(self) -> None:
        """Note that the ranks left out before are being left out again."""
        self.smaller = True

    def note_left_out(self) -> None:
        """Note that the new controller knows which ranks take part."""
        self.smaller = False

    def note_requested_controller(self) -> None:
        """Note that a controller was requested."""
        self.asked = True

    def note_serving_controller(self, now: float) -> None:
        """Note that the new controller serves, and has not been told of any rank."""
        self.absent, self.looked, self.serves_since = frozenset(), 0.0, now

    def set_absent_ranks(self, absent: Iterable[int], stand_ins: Mapping[int, str]) -> None:
        """Set the ranks without a process, or with one it must not know, and the stand-ins that register them."""
        self.absent, self.stand_ins = frozenset(absent), dict(stand_ins)

    def stand_ins_at(self, pod_uid: str) -> list[int]:
        """Return the ranks that this pod's agent registers as their stand-in."""
        return sorted(rank for rank, uid in self.stand_ins.items() if uid == pod_uid)

    def keep_event(self, event: MindIOEvent, at: float) -> bool:
        """Keep an event of the new controller until it knows every rank; False: only the former one can send it."""
        if self.phase is not ChangePhase.REGISTERING:
            return False
        self.heard.append((event, at))
        return True

    def end_change(self) -> list[tuple[MindIOEvent, float]]:
        """End the change, in service or given up; return the events kept meanwhile."""
        heard, self.heard = self.heard, []
        self.phase, self.stand_ins, self.absent = ChangePhase.NONE, {}, frozenset()
        return heard

    def forget_change(self) -> None:
        """Forget all: another start of the job begins with ranks that have seen nothing."""
        self.end_change()
        self.smaller = False
        self.serial = self.counter = 0
