"""Kubernetes quantities, as far as ``resourceFieldRef`` and chip counts need them."""

from __future__ import annotations

import math
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


def parse_quantity(text: str | int) -> Fraction:
    """The value of a quantity such as ``500m``, ``2Gi``, ``1e3`` or ``8``.

    Raises:
        ValueError: the text is no quantity.
    """
    written = str(text).strip()
    number = written.rstrip("numkMGTPEi") if "e" not in written else written
    suffix = written[len(number) :]
    if suffix not in _FACTORS:
        msg = f"{written!r} is no quantity: unknown suffix {suffix!r}"
        raise ValueError(msg)
    return Fraction(number) * _FACTORS[suffix]


def whole(text: str | int, divisor: str | int = 1) -> int:
    """The quantity in units of ``divisor``, rounded up, as ``resourceFieldRef`` gives it."""
    return math.ceil(parse_quantity(text) / parse_quantity(divisor or 1))
