"""Which function does the work of which state."""

from __future__ import annotations

from ._elastic import downgrade, scale_in, upgrade
from ._fault import abnormal, leave, normal
from ._machine import State, Work
from ._pause import migrate, pause, step_finish
from ._repair import clear, dump, repair

WORK: dict[State, Work] = {
    State.NORMAL: normal,
    State.PAUSE: pause,
    State.STEP_FINISH: step_finish,
    State.MIGRATION: migrate,
    State.ABNORMAL: abnormal,
    State.ENV_CLEAR: clear,
    State.REPAIR: repair,
    State.DG_REPAIR: scale_in,
    State.DOWNGRADE: downgrade,
    State.UPGRADE: upgrade,
    State.DUMP: dump,
    State.EXIT: leave,
}
