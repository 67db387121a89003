"""The MindFormers face of the toy: MindSpore catches, reports and waits itself, where torch has MindIO's decorator.

A rank that is told to leave ends with 1, not 2 (docs/protocols/mindio.md, 8.8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from e2e.trainer.container import leave

if TYPE_CHECKING:
    from collections.abc import Mapping

    from e2e.trainer.training import Training

STATES: Final[Mapping[str, int]] = {
    "ForceStopError": 0,
    "FORCE STOP": 0,
    "UCEError": 2,
    "UCE ERROR": 2,
    "HCCEError": 4,
    "ARF FINISH": 6,
}
"""Substring of an exception → number of the state that is reported, first match first."""
UNKNOWN: Final = 8


def state_of(text: str) -> int:
    """The state to report for an exception's text."""
    return next((state for part, state in STATES.items() if part in text), UNKNOWN)


def run(training: Training) -> None:
    """Train to the end, through every recovery; one wait, where the decorator has two."""
    mindio = training.mindio
    while True:
        try:
            training.run()
        except RuntimeError as error:
            state = state_of(str(error))
            mindio.tft_report_error(state)
            if mindio.tft_wait_next_action():
                leave(1)
            if state == UNKNOWN:
                raise
        else:
            mindio.tft_destroy_processor()
            return
