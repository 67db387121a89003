"""A GPT of a few thousand parameters, its MLPs cut over the tensor group as Megatron cuts them.

The first matrix of an MLP is cut by columns, the second by rows: one sum over the group forward, one backward.
Attention, embedding and norms are held by every tensor rank, which compute the same gradients for them. First values
are drawn per whole matrix and then cut, so that they do not depend on the layout.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from e2e.torch_trainer.groups import Communicator

VOCABULARY = 32
CONTEXT = 16
HEADS = 4

Tensor = Any


class _Copied(torch.autograd.Function):  # type: ignore[misc]
    """The same forward; gradients are added up over the group."""

    @staticmethod
    def forward(context: Any, group: Communicator, values: Tensor) -> Tensor:  # noqa: ANN401 - torch's
        context.group = group
        return values.view_as(values)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[None, Tensor]:  # noqa: ANN401 - torch's
        return None, context.group.sum(gradient.clone())


class _Added(torch.autograd.Function):  # type: ignore[misc]
    """Added up over the group forward; the same backward."""

    @staticmethod
    def forward(_context: Any, group: Communicator, values: Tensor) -> Tensor:  # noqa: ANN401 - torch's
        return group.sum(values.clone())

    @staticmethod
    def backward(_context: Any, gradient: Tensor) -> tuple[None, Tensor]:  # noqa: ANN401 - torch's
        return None, gradient


class Layer(nn.Module):  # type: ignore[misc]
    """Attention, then the MLP, each with a norm before it."""

    def __init__(self, hidden: int, feed_forward: int, tensor: Communicator) -> None:
        super().__init__()
        self.tensor = tensor
        self.first_norm, self.second_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention, self.projection = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        mine = feed_forward // len(tensor.ranks)
        self.up, self.down = nn.Linear(hidden, mine), nn.Linear(mine, hidden, bias=False)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Hidden values of shape (samples, positions, hidden size)."""
        hidden = hidden + self.projection(self._attend(self.first_norm(hidden), mask))
        entering = _Copied.apply(self.tensor, self.second_norm(hidden))
        return hidden + _Added.apply(self.tensor, self.down(functional.gelu(self.up(entering))))

    def _attend(self, values: Tensor, mask: Tensor) -> Tensor:
        samples, positions, size = values.shape
        query, key, value = (
            part.view(samples, positions, HEADS, size // HEADS).transpose(1, 2)
            for part in self.attention(values).split(size, dim=2)
        )
        scores = (query @ key.transpose(2, 3)) / math.sqrt(size // HEADS)
        weights = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
        return (weights @ value).transpose(1, 2).reshape(samples, positions, size)


class Model(nn.Module):  # type: ignore[misc]
    """The whole GPT; `tensor` is the group its MLPs are cut over."""

    def __init__(self, layers: int, hidden: int, feed_forward: int, tensor: Communicator, seed: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, hidden), nn.Embedding(CONTEXT, hidden)
        self.layers = nn.ModuleList(Layer(hidden, feed_forward, tensor) for _ in range(layers))
        self.norm, self.output = nn.LayerNorm(hidden), nn.Linear(hidden, VOCABULARY, bias=False)
        self.register_buffer("mask", torch.triu(torch.ones(CONTEXT, CONTEXT, dtype=torch.bool), 1), persistent=False)
        self._draw(seed, tensor)

    def forward(self, tokens: Tensor) -> Tensor:
        """Mean cross entropy of the next token."""
        hidden = self.tokens(tokens) + self.positions(torch.arange(CONTEXT))
        for layer in self.layers:
            hidden = layer(hidden, self.mask)
        logits = self.output(self.norm(hidden))
        return functional.cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))

    def _draw(self, seed: int, tensor: Communicator) -> None:
        place, parts = tensor.ranks.index(tensor.world.rank), len(tensor.ranks)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                shape = list(parameter.shape)
                cut = 0 if ".up." in name else 1 if ".down." in name else None
                if cut is not None:
                    shape[cut] *= parts
                whole = torch.randn(shape, generator=generator) * 0.05
                if "norm" in name:
                    whole = whole * 0 + float(name.endswith("weight"))
                parameter.copy_(whole if cut is None else whole.chunk(parts, dim=cut)[place])


def batch(seed: int, step: int, data: int, samples: int) -> Tensor:
    """Tokens of a step for one data-parallel rank: in this language the next one follows from the last two."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step * 1_009 + data)
    tokens = torch.randint(0, VOCABULARY, (samples, CONTEXT), generator=generator)
    for position in range(2, CONTEXT):
        tokens[:, position] = (3 * tokens[:, position - 1] + tokens[:, position - 2]) % VOCABULARY
    return tokens
