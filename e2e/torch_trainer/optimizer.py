"""Adam over one shard of all parameters (ZeRO-1); each shard exists twice in a data-parallel group.

The group is cut in two halves, positions i and i + n/2 hold the same shard, and each half gathers its parameters from
its own shards. A shard is complete at a step or not used: its tensors are replaced together at the end of an update.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from e2e.torch_trainer.groups import Communicator

BETAS: Final = (0.9, 0.95)
EPSILON: Final = 1e-8
KEYS: Final = ("master", "exp_avg", "exp_avg_sq")

Tensor = Any


class ShardedAdam:
    """The optimizer of one rank; `half` is its half of the data-parallel group, in order of shards."""

    def __init__(self, model: Any, half: Communicator, learning_rate: float) -> None:  # noqa: ANN401 - torch's
        self._parameters = list(model.parameters())
        self._half = half
        self._learning_rate = learning_rate
        self._used = sum(parameter.numel() for parameter in self._parameters)
        self.length = -(-self._used // len(half.ranks))
        shard = half.ranks.index(half.world.rank)
        self.step = 0
        master = self._padded(parameters_to_vector(self._parameters).detach())
        self.state: dict[str, Tensor] = {"master": master[shard * self.length : (shard + 1) * self.length].clone()}
        self.state |= {key: torch.zeros(self.length) for key in KEYS[1:]}
        self._cut = slice(shard * self.length, (shard + 1) * self.length)

    def gradient(self) -> Tensor:
        """All gradients as one vector, which is taken from the parameters."""
        vector = torch.cat([parameter.grad.reshape(-1) for parameter in self._parameters])
        self.clear_gradients()
        return self._padded(vector)

    def clear_gradients(self) -> None:
        """Forget what a backward pass that was broken off has left: the repeated step would add to it."""
        for parameter in self._parameters:
            parameter.grad = None

    def update(self, gradient: Tensor) -> None:
        """One step with the whole gradient vector; only the own shard is touched."""
        mine, step = gradient[self._cut], self.step + 1
        first = BETAS[0] * self.state["exp_avg"] + (1 - BETAS[0]) * mine
        second = BETAS[1] * self.state["exp_avg_sq"] + (1 - BETAS[1]) * mine * mine
        size = self._learning_rate * (1 - BETAS[1] ** step) ** 0.5 / (1 - BETAS[0] ** step)
        master = self.state["master"] - size * first / (second.sqrt() + EPSILON)
        self.state, self.step = {"master": master, "exp_avg": first, "exp_avg_sq": second}, step

    def gather(self) -> None:
        """Parameters from the shards of the own half."""
        self.take(self._half.gather(self.state["master"]))

    def take(self, whole: Tensor) -> None:
        """Parameters from a whole vector of master weights."""
        vector_to_parameters(whole[: self._used], self._parameters)

    def parameters(self) -> Tensor:
        """All parameters as one vector."""
        return parameters_to_vector(self._parameters).detach()

    def restore(self, state: dict[str, Tensor], step: int) -> None:
        """Take over a shard."""
        self.state, self.step = {key: state[key].clone() for key in KEYS}, step

    def lose(self) -> None:
        """Forget everything, as a chip's memory does after an uncorrectable error."""
        self.state, self.step = {key: torch.full((self.length,), float("nan")) for key in KEYS}, -1

    def _padded(self, vector: Tensor) -> Tensor:
        return torch.cat([vector, torch.zeros(self.length * len(self._half.ranks) - self._used)])
