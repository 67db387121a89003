"""Kubernetes quantities, as far as ``resourceFieldRef`` and chip counts need them."""

from __future__ import annotations

import math
import re
from fractions import Fraction

_FACTORS = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_QUANTITY = re.compile(r"(?P<number>[+-]?\d+(\.\d+)?([eE][+-]?\d+)?)(?P<suffix>[numkMGTPE]|[KMGTPE]i|)")


def parse_quantity(text: str | int) -> Fraction:
    """The value of a quantity such as ``500m``, ``2Gi``, ``1e3`` or ``8``.

    Raises:
        ValueError: the text is no quantity.
    """
    written = str(text).strip()
    parts = _QUANTITY.fullmatch(written)
    if parts is None:
        raise ValueError(f"{written!r} is no quantity")
    return Fraction(parts["number"]) * _FACTORS[parts["suffix"]]


def whole(text: str | int, divisor: str | int = 1) -> int:
    """The quantity in units of ``divisor``, rounded up, as ``resourceFieldRef`` gives it; a divisor of 0 is 1."""
    return math.ceil(parse_quantity(text) / (parse_quantity(divisor) or 1))
