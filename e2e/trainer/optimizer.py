"""Adam in float32 over one shard of a stage's parameters (ZeRO-1).

A shard is complete at a step or it is not used: `update` replaces the three arrays together at its end, so a stop in
the middle of a step never leaves a half-updated shard behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping

Array = NDArray[np.float32]
KEYS = ("master", "exp_avg", "exp_avg_sq")


@dataclass
class Shard:
    """Master weights, both moments and the step they stand at; all arrays have one length."""

    master: Array
    exp_avg: Array
    exp_avg_sq: Array
    step: int = 0

    @classmethod
    def fresh(cls, weights: Array) -> Shard:
        """State before the first step."""
        return cls(weights.copy(), np.zeros_like(weights), np.zeros_like(weights))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], step: int) -> Shard:
        """State from named arrays, which are copied."""
        master, exp_avg, exp_avg_sq = (np.array(arrays[key], dtype=np.float32) for key in KEYS)
        return cls(master, exp_avg, exp_avg_sq, step)

    def arrays(self) -> dict[str, Array]:
        """Named arrays of the state, not copied."""
        return {key: getattr(self, key) for key in KEYS}

    def lose(self) -> None:
        """Forget everything, as a chip's memory does after an uncorrectable error."""
        for key in KEYS:
            setattr(self, key, np.full_like(getattr(self, key), np.nan))
        self.step = -1

    def update(self, gradient: Array, learning_rate: float) -> None:
        """One step of Adam with bias correction, β = (0.9, 0.95), ε = 1e-8."""
        step = self.step + 1
        exp_avg = np.float32(0.9) * self.exp_avg + np.float32(0.1) * gradient
        exp_avg_sq = np.float32(0.95) * self.exp_avg_sq + np.float32(0.05) * gradient * gradient
        size = np.float32(learning_rate * np.sqrt(1 - 0.95**step) / (1 - 0.9**step))
        direction: Array = np.divide(exp_avg, np.sqrt(exp_avg_sq) + np.float32(1e-8))
        master = self.master - size * direction
        self.master, self.exp_avg, self.exp_avg_sq, self.step = master, exp_avg, exp_avg_sq, step
