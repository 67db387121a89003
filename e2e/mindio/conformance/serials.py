"""Where actions and answers have their serial, written down once more on purpose (docs/protocols/mindio.md §9.6)."""

from __future__ import annotations

SERIAL_AT = {4: 16, 7: 4, 21: 24, 35: 24, 23: 14, 37: 14, 29: 8, 31: 8, 33: 8}
"""Where an action has its serial, 0 unless said; every answer has it at 4."""
ANSWER_BYTES = {10: 72, 12: 72, 26: 72}
"""Lengths of answers that carry an account, 12 unless said."""


def serial(kind: int, body: bytes, *, answers: bool) -> int:
    """The serial of an action, or of an answer."""
    at = 4 if answers else SERIAL_AT.get(kind, 0)
    return int.from_bytes(body[at : at + 2], "little")
