# ruff: noqa: ANN401 - values of strangers pass through here
"""The exception decorator: from the text of an exception to a state, a wait, and another call of the function.

The order of the table matters: the first pattern that occurs in the text wins (docs/protocols/mindio.md §8.2).
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import Any

from . import _settings as settings
from . import utils
from ._names import ReportState
from ._processor import Processor, registered

S = ReportState

#: Substring → state. UCE and HBM are decided by functions below.
PATTERNS: tuple[tuple[str, ReportState], ...] = (
    ("UCE ERROR", S.RS_UCE),
    ("HBM MULTI BIT ECC", S.RS_UCE),
    ("FORCE STOP", S.RS_NORMAL),
    ("ARF FINISH", S.RS_PREREPAIR_FINISH),
    ("STEP FINISH", S.RS_STEP_FINISH),
    ("HCCL OP RETRY FAILED", S.RS_HCCL_FAILED),
    ("SUSPECT REMOTE ERROR", S.RS_HCCL_FAILED),
    ("UB LINK ERROR", S.RS_HCCL_FAILED),
    ("HCCS LINK ERROR", S.RS_HCCL_FAILED),
)
RETRIED = {S.RS_UCE, S.RS_UCE_CORRUPTED, S.RS_HCCL_FAILED}
ONE_WAIT = {S.RS_PREREPAIR_FINISH, S.RS_STEP_FINISH, S.RS_INIT_FINISH}
CODE = re.compile(r"device error type\s*[:=]?\s*(?:0x)?([0-9a-fA-F]+)")
MICROSECONDS = re.compile(r"time us\s*=\s*(\d+)")


def state_of(text: str, *, uce: bool) -> ReportState:
    """The state that an exception's text means; `uce` is what the rank was started with."""
    state = _match(text)
    if state in RETRIED and not uce:
        return S.RS_UNKNOWN
    return state


def _match(text: str) -> ReportState:
    for pattern, state in PATTERNS:
        if pattern in text:
            return _repairable(text) if pattern == "HBM MULTI BIT ECC" else state
    for pattern, name, function in registered.exceptions:
        if pattern in text:
            key = function(text)
            return S.__members__.get(str(key), S.__members__.get(name, S.RS_UNKNOWN))
    return S.RS_UNKNOWN


def _repairable(text: str) -> ReportState:
    found = MICROSECONDS.search(text)
    good = found is not None and utils.tft_can_do_uce_repair(int(found.group(1)))
    return S.RS_UCE if good else S.RS_UCE_CORRUPTED


def code_of(text: str) -> str:
    """The device error type named in the text, at most 15 characters."""
    found = CODE.search(text)
    return found.group(1)[:15] if found else ""


def decorate(
    func: Callable[..., Any], current: Callable[[], Processor | None], end: Callable[[], None]
) -> Callable[..., Any]:
    """Wrap the training function; `end` is called after its normal return."""

    @functools.wraps(func)
    def train(*args: Any, **kwargs: Any) -> Any:
        if not registered.args_fixed or registered.exported:
            registered.args = list(args)
        while True:
            processor = current()
            try:
                returned = func(*args, **kwargs)
            except RuntimeError as error:
                if processor is None:
                    raise
                after(processor, error)
            except Exception:  # and no more: sys.exit() passes without a word to the controller
                if processor is not None:
                    settings.log_exception(processor.options.rank)
                    processor.report(S.RS_UNKNOWN)
                    if settings.on("odd_error_waits"):
                        is_told_to_leave(processor)
                raise
            else:
                end()
                return returned

    return train


def after(processor: Processor, error: RuntimeError) -> None:
    """Report, wait until the function may be called again; leaves the process when that is wanted."""
    text = str(error)
    state = state_of(text, uce=processor.options.uce)
    settings.log(f"rank {processor.options.rank}: {state.name} for {text!r}")
    if state is S.RS_UNKNOWN:
        settings.log_exception(processor.options.rank)
    processor.report(state, code_of(text))
    if state is S.RS_UNKNOWN:
        wait_for_exit(processor)
        raise error
    for _ in range(1 if state in ONE_WAIT or settings.mindspore() else 2):
        if processor.wait_go():
            processor.forced_exit()


def wait_for_exit(processor: Processor) -> None:
    """A rank that failed for an unknown reason waits for the message to leave, up to the action limit."""
    if is_told_to_leave(processor):
        processor.forced_exit()


def is_told_to_leave(processor: Processor) -> bool:
    """Wait for the message to leave, up to the action limit; whether it came."""
    with processor.condition:
        return processor.condition.wait_for(lambda: processor.leaving, settings.action_seconds())


def hosted_here(rank: int) -> bool:
    """Whether this rank's normal end also ends a controller in this process."""
    return rank == 0 and not os.environ.get("MINDX_TASK_ID")
