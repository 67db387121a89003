"""Quantities of resources, in thousandths."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

_SUFFIX: Final = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    **{letter: Fraction(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}
_NUMBER: Final = re.compile(r"^([+-]?[0-9.]+(?:[eE][+-]?\d+)?)(\D*)$")


def milli(quantity: str) -> int:
    """Thousandths, rounded up as the server does.

    Raises:
        ValueError: it is no quantity.
    """
    found = _NUMBER.match(quantity)
    if found is None or found.group(2) not in _SUFFIX:
        raise ValueError(f"{quantity!r} is no quantity")
    exact = Fraction(found.group(1)) * _SUFFIX[found.group(2)] * 1000
    return -((-exact.numerator) // exact.denominator)


def written(thousandths: int, binary: bool = False) -> str:
    """As the server writes it: the largest unit that leaves a whole number."""
    if thousandths % 1000:
        return f"{thousandths}m"
    whole = thousandths // 1000
    base, letters = (1024, "KMGTPE") if binary else (1000, "kMGTPE")
    suffix = ""
    for letter in letters:
        if whole == 0 or whole % base:
            break
        whole, suffix = whole // base, f"{letter}i" if binary else letter
    return f"{whole}{suffix}"
