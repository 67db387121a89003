"""Which function does the work of which state."""

from __future__ import annotations

from collections.abc import Callable

from ._controller import Controller
from ._elastic import downgrade, scale_in, upgrade, upgrade_repair
from ._fault import abnormal, leave, normal
from ._machine import State
from ._pause import migrate, pause, step_finish
from ._repair import clear, dump, repair


def restore(controller: Controller) -> str:
    """REPAIR: bring ranks back, or take those in again that were dropped."""
    return upgrade_repair(controller) if controller.incident.strategy == "upgrade" else repair(controller)


WORK: dict[State, Callable[[Controller], str]] = {
    State.NORMAL: normal,
    State.PAUSE: pause,
    State.STEP_FINISH: step_finish,
    State.MIGRATION: migrate,
    State.ABNORMAL: abnormal,
    State.ENV_CLEAR: clear,
    State.REPAIR: restore,
    State.DG_REPAIR: scale_in,
    State.DOWNGRADE: downgrade,
    State.UPGRADE: upgrade,
    State.DUMP: dump,
    State.EXIT: leave,
}
