"""What MindIO's four callbacks say, as events of the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer_sidecar.coordinator.conversation import Event, Kind

RESULT_KINDS = {
    0: Kind.SUCCESS,
    201: Kind.ISOLATED,
    405: Kind.RETRY_REFUSED,
    406: Kind.OPEN_FAILURE,
}


def parse_callback(name: str, arguments: Sequence[Any]) -> Event | None:
    """The event of a callback's arguments, dictionaries as lists of pairs; None when they are not what MindIO sends."""
    try:
        return _parse(name, arguments)
    except (IndexError, TypeError, ValueError):
        return None


def _parse(name: str, arguments: Sequence[Any]) -> Event | None:
    if name == "report_fault_ranks":
        codes = dict(arguments[1]) if len(arguments) > 1 else {}
        return Event(Kind.FAULT, dict(arguments[0]), codes)
    if name == "report_stop_complete":
        code, text, ranks = arguments
        return Event(Kind.STOP_OK if code == 0 else Kind.STOP_FAILED, dict(ranks), code=code, text=text)
    if name == "report_strategies":
        return Event(Kind.OFFER, dict(arguments[0]), strategies=tuple(arguments[1]))
    if name == "report_result":
        code, text, ranks, strategy = arguments
        kind = RESULT_KINDS.get(code, Kind.FAILURE)
        return Event(kind, dict(ranks), code=code, text=text, strategy=strategy)
    return None
