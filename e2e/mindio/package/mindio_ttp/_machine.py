"""The controller's state machine: one table, and the thread that walks through it (docs/protocols/mindio.md §5)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol, TypeVar

from . import _settings as settings


class State(Enum):
    """What the controller is doing."""

    INIT = "init"
    NORMAL = "normal"
    PAUSE = "pause"
    STEP_FINISH = "step finish"
    MIGRATION = "migration"
    ABNORMAL = "abnormal"
    ENV_CLEAR = "env clear"
    REPAIR = "repair"
    DG_REPAIR = "downgrade repair"
    DOWNGRADE = "downgrade"
    UPGRADE = "upgrade"
    DUMP = "dump"
    EXIT = "exit"
    FINAL = "final"


S = State

#: (state, outcome of its work) → next state. An outcome that is not listed is a mistake of the simulator.
TABLE: dict[tuple[State, str], State] = {
    (S.INIT, "started"): S.NORMAL,
    (S.NORMAL, "fault"): S.ABNORMAL,
    (S.NORMAL, "stop"): S.ABNORMAL,
    (S.NORMAL, "save"): S.ABNORMAL,
    (S.NORMAL, "pause"): S.PAUSE,
    (S.NORMAL, "hot switch"): S.STEP_FINISH,
    (S.NORMAL, "closed"): S.FINAL,
    (S.PAUSE, "continued"): S.NORMAL,
    (S.PAUSE, "broken"): S.ABNORMAL,
    (S.PAUSE, "exit"): S.EXIT,
    (S.STEP_FINISH, "migrate"): S.MIGRATION,
    (S.STEP_FINISH, "exit"): S.EXIT,
    (S.MIGRATION, "repaired"): S.NORMAL,
    (S.MIGRATION, "dump"): S.DUMP,
    (S.MIGRATION, "exit"): S.EXIT,
    (S.ABNORMAL, "nothing wrong"): S.NORMAL,
    (S.ABNORMAL, "nothing wrong, scaled in"): S.DOWNGRADE,
    (S.ABNORMAL, "repair"): S.ENV_CLEAR,
    (S.ABNORMAL, "dump"): S.DUMP,
    (S.ABNORMAL, "exit"): S.EXIT,
    (S.ENV_CLEAR, "repair"): S.REPAIR,
    (S.ENV_CLEAR, "downgrade"): S.DG_REPAIR,
    (S.ENV_CLEAR, "dump"): S.DUMP,
    (S.ENV_CLEAR, "exit"): S.EXIT,
    (S.REPAIR, "repaired"): S.NORMAL,
    (S.REPAIR, "downgrade"): S.DG_REPAIR,
    (S.REPAIR, "dump"): S.DUMP,
    (S.REPAIR, "exit"): S.EXIT,
    (S.DG_REPAIR, "scaled in"): S.DOWNGRADE,
    (S.DG_REPAIR, "dump"): S.DUMP,
    (S.DG_REPAIR, "exit"): S.EXIT,
    (S.DOWNGRADE, "fault"): S.ABNORMAL,
    (S.DOWNGRADE, "stop"): S.ABNORMAL,
    (S.DOWNGRADE, "save"): S.ABNORMAL,
    (S.DOWNGRADE, "upgrade"): S.UPGRADE,
    (S.DOWNGRADE, "closed"): S.FINAL,
    (S.UPGRADE, "locked"): S.ENV_CLEAR,
    (S.UPGRADE, "exit"): S.EXIT,
    (S.DUMP, "exit"): S.EXIT,
    (S.EXIT, "done"): S.FINAL,
}


class Subject(Protocol):
    """What walks through the table."""

    closing: bool

    def enter(self, state: State) -> None:
        """The machine is in `state` now."""


Walker = TypeVar("Walker", bound=Subject)


def run(controller: Walker, work: dict[State, Callable[[Walker], str]]) -> None:
    """Walk through the table until FINAL; every state's work runs on this thread."""
    state = State.INIT
    outcome = "started"
    while True:
        state = TABLE[state, outcome]
        if controller.closing:
            state = State.FINAL
        settings.log(f"controller: {outcome} -> {state.value}")
        controller.enter(state)
        if state is State.FINAL:
            return
        outcome = work[state](controller)
        if controller.closing:
            controller.enter(State.FINAL)
            return
