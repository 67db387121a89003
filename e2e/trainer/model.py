"""One stage of a small language model, cut over tensor and pipeline ranks as Megatron cuts a transformer's MLP.

Each layer is y = x + relu(x·A + a)·B + b. A is cut by columns and B by rows, so that a layer needs one sum over the
tensor group forward and one backward. Embedding, output matrix and b are held by every tensor rank, which compute the
same gradient for them. All parameters of a stage lie in one flat vector, which is what the optimizer cuts into shards.

Passes work on a stack of micro batches, arrays of shape (micro batches, samples, …). NumPy multiplies each matrix of a
stack by itself, so a micro batch's gradient does not depend on which others were in the stack.

Sums are made in an order that depends on shapes only, never on timing: bitwise equal runs rest on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from e2e.trainer.noise import bells

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.trainer.layout import Layout
    from e2e.trainer.settings import Model

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Slot:
    """Where one parameter lies in the flat vector."""

    name: str
    start: int
    shape: tuple[int, ...]
    end: int = field(init=False)
    """First place after the parameter."""

    def __post_init__(self) -> None:
        """Reckon the end once: it is asked for dozens of times in a step."""
        object.__setattr__(self, "end", self.start + math.prod(self.shape))


@dataclass
class Trace:
    """What the forward pass of a stack of micro batches leaves for the backward pass."""

    inputs: list[Array]
    activations: list[Array]
    one_hot: Array | None = None
    probabilities: Array | None = None


class Stage:
    """Parameters and passes of the layers that one (tensor, pipeline) coordinate holds."""

    def __init__(self, model: Model, layout: Layout, tensor: int, pipeline: int) -> None:
        self.first = pipeline == 0
        self.last = pipeline == layout.pipeline - 1
        self._model = model
        self._unit = np.eye(model.vocabulary, dtype=np.float32)
        self._layout = layout
        self._tensor = tensor
        each = model.layers // layout.pipeline
        self.layers = range(pipeline * each, (pipeline + 1) * each)
        self.slots = {slot.name: slot for slot in _lay_out(self._shapes())}
        used = max(slot.end for slot in self.slots.values())
        self.size = -(-used // layout.shards) * layout.shards

    def _shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        model = self._model
        columns = model.feed_forward // self._layout.tensor
        if self.first:
            yield "embedding", (model.vocabulary * model.context, model.hidden)
        for layer in self.layers:
            yield f"layers.{layer}.up.weight", (model.hidden, columns)
            yield f"layers.{layer}.up.bias", (columns,)
            yield f"layers.{layer}.down.weight", (columns, model.hidden)
            yield f"layers.{layer}.down.bias", (model.hidden,)
        if self.last:
            yield "output", (model.hidden, model.vocabulary)

    def initial(self, seed: int) -> Array:
        """First values: drawn per whole matrix, then cut, so that they don't depend on the layout."""
        vector = np.zeros(self.size, dtype=np.float32)
        for slot in self.slots.values():
            if not slot.name.endswith("bias"):
                vector[slot.start : slot.end] = self._drawn(slot, seed).ravel()
        return vector

    def _drawn(self, slot: Slot, seed: int) -> Array:
        columns, rows = slot.name.endswith("up.weight"), slot.name.endswith("down.weight")
        height = slot.shape[0] * (self._layout.tensor if rows else 1)
        width = slot.shape[1] * (self._layout.tensor if columns else 1)
        key = seed + sum(ord(letter) << (7 * (place % 8)) for place, letter in enumerate(slot.name))
        whole: Array = (bells(key, height * width).reshape(height, width) / np.sqrt(height)).astype(np.float32)
        if columns:
            return whole[:, self._tensor * slot.shape[1] : (self._tensor + 1) * slot.shape[1]]
        if rows:
            return whole[self._tensor * slot.shape[0] : (self._tensor + 1) * slot.shape[0]]
        return whole

    def view(self, vector: Array, name: str) -> Array:
        """The parameter `name` inside a flat vector or a stack of such; writing to it writes to the vector."""
        slot = self.slots[name]
        return vector[..., slot.start : slot.end].reshape(*vector.shape[:-1], *slot.shape)

    def embed(self, parameters: Array, tokens: NDArray[np.int64]) -> tuple[Array, Array]:
        """Hidden values and one-hot inputs of the first stage for tokens of shape (micro batches, samples, context)."""
        one_hot = self._unit[tokens].reshape(*tokens.shape[:-1], -1)
        return one_hot @ self.view(parameters, "embedding"), one_hot

    def forward(self, parameters: Array, hidden: Array, reduce: Callable[[Array], Array]) -> tuple[Array, Trace]:
        """Run the layers; `reduce` sums an array over the tensor group."""
        trace = Trace([], [])
        for layer in self.layers:
            name = f"layers.{layer}."
            pre = hidden @ self.view(parameters, name + "up.weight") + self.view(parameters, name + "up.bias")
            activation = np.maximum(pre, np.float32(0))
            trace.inputs.append(hidden)
            trace.activations.append(activation)
            partial = activation @ self.view(parameters, name + "down.weight")
            hidden = hidden + reduce(partial) + self.view(parameters, name + "down.bias")
        trace.inputs.append(hidden)
        return hidden, trace

    def losses(self, parameters: Array, trace: Trace, targets: NDArray[np.int64]) -> list[float]:
        """Mean cross entropy of each micro batch in the last stage; keeps what the backward pass needs."""
        samples = np.float32(targets.shape[-1])
        logits = trace.inputs[-1] @ self.view(parameters, "output")
        shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
        probabilities: Array = np.divide(shifted, shifted.sum(axis=-1, keepdims=True))
        hot = self._unit[targets]
        chosen = (probabilities * hot).sum(axis=-1)
        trace.probabilities = np.divide(probabilities - hot, samples)
        return [float(-one.sum() / samples) for one in np.log(chosen.astype(np.float64))]

    def backward(
        self, parameters: Array, trace: Trace, above: Array | None, reduce: Callable[[Array], Array]
    ) -> tuple[Array, Array]:
        """Flat gradient of each micro batch, and the gradient for the stage below; `above` is the one from above."""
        gradient = np.zeros((len(trace.inputs[-1]), self.size), dtype=np.float32)
        if self.last:
            assert trace.probabilities is not None, "loss() runs before backward() in the last stage"
            self.view(gradient, "output")[...] = _turned(trace.inputs[-1]) @ trace.probabilities
            above = trace.probabilities @ self.view(parameters, "output").T
        assert above is not None, "only the last stage has no gradient from above"
        for place in reversed(range(len(self.layers))):
            above = self._layer_backward(parameters, gradient, trace, above, place=place, reduce=reduce)
        if self.first:
            assert trace.one_hot is not None, "the first stage keeps its inputs"
            self.view(gradient, "embedding")[...] = _turned(trace.one_hot) @ above
        return gradient, above

    def _layer_backward(
        self,
        parameters: Array,
        gradient: Array,
        trace: Trace,
        above: Array,
        *,
        place: int,
        reduce: Callable[[Array], Array],
    ) -> Array:
        name = f"layers.{self.layers[place]}."
        hidden, activation = trace.inputs[place], trace.activations[place]
        self.view(gradient, name + "down.bias")[...] = above.sum(axis=-2)
        self.view(gradient, name + "down.weight")[...] = _turned(activation) @ above
        inner: Array = above @ self.view(parameters, name + "down.weight").T
        inner = np.where(activation <= 0, np.float32(0), inner)
        self.view(gradient, name + "up.weight")[...] = _turned(hidden) @ inner
        self.view(gradient, name + "up.bias")[...] = inner.sum(axis=-2)
        return above + reduce(inner @ self.view(parameters, name + "up.weight").T)


def _turned(stack: Array) -> Array:
    """Each matrix of a stack transposed."""
    return stack.swapaxes(-1, -2)


def _lay_out(shapes: Iterator[tuple[str, tuple[int, ...]]]) -> Iterator[Slot]:
    start = 0
    for name, shape in shapes:
        slot = Slot(name, start, shape)
        yield slot
        start = slot.end
