import numpy as np
import pytest

from e2e.trainer.corpus import Corpus
from e2e.trainer.layout import Layout
from e2e.trainer.model import Array, Stage
from e2e.trainer.optimizer import Shard
from e2e.trainer.settings import Model

MODEL = Model(layers=2, hidden=8, feed_forward=16)
ALONE = Layout(tensor=1, data=1, pipeline=1, copies=1)


def alone(values: Array) -> Array:
    return values


def passes(stage: Stage, parameters: Array, step: int, stack: range) -> tuple[list[float], Array]:
    tokens, targets = Corpus(1, MODEL.vocabulary, MODEL.context).micro_batches(step, stack, 3, 4)
    hidden, one_hot = stage.embed(parameters, tokens)
    _, trace = stage.forward(parameters, hidden, alone)
    trace.one_hot = one_hot
    losses = stage.losses(parameters, trace, targets)
    return losses, stage.backward(parameters, trace, None, alone)[0]


def test_gradient_is_the_slope_of_the_loss() -> None:
    stage = Stage(MODEL, ALONE, 0, 0)
    parameters = stage.initial(7)
    gradient = passes(stage, parameters, 1, range(1))[1][0]
    for place in np.argsort(-np.abs(gradient))[:20]:
        around = []
        for shift in (2e-3, -2e-3):
            moved = parameters.copy()
            moved[place] += np.float32(shift)
            around.append(passes(stage, moved, 1, range(1))[0][0])
        assert (around[0] - around[1]) / 4e-3 == pytest.approx(gradient[place], rel=0.05, abs=1e-3)


def test_micro_batch_has_the_same_gradient_alone_and_in_a_stack() -> None:
    stage = Stage(MODEL, ALONE, 0, 0)
    parameters = stage.initial(7)
    losses, stacked = passes(stage, parameters, 5, range(4))
    for index in range(4):
        loss, single = passes(stage, parameters, 5, range(index, index + 1))
        assert loss == [losses[index]]
        assert single[0].tobytes() == stacked[index].tobytes()


def test_first_weights_do_not_depend_on_the_layout() -> None:
    whole = Stage(MODEL, ALONE, 0, 0)
    weights = whole.initial(3)
    for tensor in range(2):
        part = Stage(MODEL, Layout(tensor=2, data=1, pipeline=1, copies=1), tensor, 0)
        cut = part.view(part.initial(3), "layers.1.up.weight")
        expected = whole.view(weights, "layers.1.up.weight")[:, tensor * 8 : (tensor + 1) * 8]
        assert np.array_equal(cut, expected)


def test_stage_is_padded_to_whole_shards() -> None:
    stage = Stage(MODEL, Layout(tensor=1, data=6, pipeline=1), 0, 0)
    assert stage.size % 3 == 0


def test_training_lowers_the_loss() -> None:
    stage = Stage(MODEL, ALONE, 0, 0)
    shard = Shard.fresh(stage.initial(7))
    losses = []
    for step in range(1, 150):
        found, gradients = passes(stage, shard.master, step, range(4))
        losses.append(sum(found) / 4)
        shard.update(gradients.sum(axis=0) / np.float32(4), 1e-2)
    assert sum(losses[-20:]) < sum(losses[:20]) * 0.7
    assert shard.step == 149
