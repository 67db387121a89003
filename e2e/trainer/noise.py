"""Made-up numbers that are the same everywhere: a hash of a key and an index (splitmix64).

NumPy's own generators would do, but importing them is a tenth of a rank's start-up, and a restarted rank's start-up is
what everybody else waits for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_STEP = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def integers(key: int, count: int) -> NDArray[np.uint64]:
    """`count` numbers of 64 random bits, the same for the same key."""
    start = np.uint64(key * 0xD1342543DE82EF95 & _MASK)
    bits = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_STEP) + start
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return bits ^ (bits >> np.uint64(31))


def below(key: int, limit: int, count: int) -> list[int]:
    """`count` whole numbers in 0 … limit−1."""
    return [int(value) for value in integers(key, count) % np.uint64(limit)]


def bells(key: int, count: int) -> NDArray[np.float64]:
    """`count` numbers about 0 with deviation 1, each the sum of four evenly spread ones."""
    parts = integers(key, 4 * count).reshape(4, count) / float(1 << 64)
    result: NDArray[np.float64] = (parts[0] + parts[1] + parts[2] + parts[3] - 2.0) * np.sqrt(3.0)
    return result
