"""MindIO's four callbacks, parsed into events of the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer_sidecar.coordinator.conversation.conversation import EventKind, MindIOEvent

RESULT_KINDS = {
    0: EventKind.SUCCESS,
    201: EventKind.ISOLATED,
    405: EventKind.RETRY_REFUSED,
    406: EventKind.OPEN_FAILURE,
}


def parse_callback(name: str, arguments: Sequence[Any]) -> MindIOEvent | None:
    """Parse a callback's arguments (dictionaries as lists of pairs); return None when MindIO does not send such."""
    try:
        return _parse_known_callback(name, arguments)
    except (IndexError, TypeError, ValueError):
        return None


def _parse_known_callback(name: str, arguments: Sequence[Any]) -> MindIOEvent | None:
    if name == "report_fault_ranks":
        codes = dict(arguments[1]) if len(arguments) > 1 else {}
        return MindIOEvent(EventKind.FAULT, dict(arguments[0]), codes)
    if name == "report_stop_complete":
        code, text, ranks = arguments
        return MindIOEvent(EventKind.STOP_OK if code == 0 else EventKind.STOP_FAILED, dict(ranks), code=code, text=text)
    if name == "report_strategies":
        return MindIOEvent(EventKind.OFFER, dict(arguments[0]), strategies=tuple(arguments[1]))
    if name == "report_result":
        code, text, ranks, strategy = arguments
        kind = RESULT_KINDS.get(code, EventKind.FAILURE)
        return MindIOEvent(kind, dict(ranks), code=code, text=text, strategy=strategy)
    return None
