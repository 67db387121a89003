"""A made text, the same for everybody: every sample is a function of the seed and its index.

No rank has to be told what another one reads, and a step can be repeated at any time without saved reader state.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from e2e.trainer.noise import below

Tokens = NDArray[np.int64]


class Corpus:
    """Character stream of a fixed random automaton: mostly the next token follows from the last one."""

    def __init__(self, seed: int, vocabulary: int, context: int, length: int = 1 << 12) -> None:
        stride = 2 * below(seed, vocabulary, 1)[0] + 1
        follower = [(token * stride + 1) % vocabulary for token in range(vocabulary)]
        stream = [0]
        for value in below(seed + 1, vocabulary * 4, length):
            stream.append(value if value < vocabulary else follower[stream[-1]])
        self._stream = np.array(stream[:length], dtype=np.int64)
        self._context = context

    def micro_batches(self, step: int, stack: range, size: int, in_step: int) -> tuple[Tokens, Tokens]:
        """Inputs (micro batches, size, context) and targets (micro batches, size) of a range of micro batches.

        `in_step` is the number of micro batches in the global batch.
        """
        samples = (step * in_step + np.arange(stack.start, stack.stop))[:, None] * size + np.arange(size)
        starts = samples * 7919 % (len(self._stream) - self._context - 1)
        tokens = self._stream[starts[..., None] + np.arange(self._context + 1)]
        return tokens[..., :-1], tokens[..., -1]
