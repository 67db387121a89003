"""The MindFormers face of the toy: MindSpore catches, reports and waits itself, where torch has MindIO's decorator.

A rank that is told to leave ends with 1, not 2 (docs/protocols/mindio.md, 8.8). What it does not know, it reports and
raises at once; the process then waits at its end until MindIO lets it go. Source: MindSpore 2.10, train/model.py,
`_handle_tft`.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Final

from e2e.trainer.container import leave

if TYPE_CHECKING:
    from collections.abc import Mapping

    from e2e.trainer.recovery import Handlers
    from e2e.trainer.training import Training

STATES: Final[Mapping[str, int]] = {
    "UCEError": 2,
    "UCE ERROR": 2,
    "HCCEError": 4,
    "SuspectRemoteError": 4,
    "ForceStopError": 0,
    "FORCE STOP": 0,
    "ARF FINISH": 6,
    "STEP FINISH": 7,
}
"""Substring of an exception → number of the state that is reported, first match first. Two are the toy's own words."""
UNKNOWN: Final = 8


def state_of(text: str) -> int:
    """The state to report for an exception's text."""
    return next((state for part, state in STATES.items() if part in text), UNKNOWN)


def run(training: Training, handlers: Handlers) -> None:
    """Train to the end, through every recovery; one wait, where the decorator has two."""
    mindio = training.mindio
    while True:
        try:
            training.run()
        except RuntimeError as error:
            state = state_of(str(error))
            mindio.tft_report_error(state)
            if state == UNKNOWN:
                traceback.print_exception(error)
            if mindio.tft_wait_next_action() or state == UNKNOWN:
                leave(1)
            handlers.go_on()
        else:
            mindio.tft_destroy_processor()
            return
