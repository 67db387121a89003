import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.trainer.summation import Node, Vector, add_up, root, subtrees


@given(st.integers(1, 40), st.data())
def test_sum_has_the_same_bits_however_the_batch_is_cut(leaves: int, data: st.DataObject) -> None:
    values = np.random.default_rng(leaves).standard_normal((leaves, 7)).astype(np.float32)
    known: dict[Node, Vector] = {(index, 1): values[index] for index in range(leaves)}
    whole = add_up(root(leaves), known, leaves)
    cuts = sorted(data.draw(st.sets(st.integers(1, max(leaves - 1, 1)), max_size=6)))
    parts: dict[Node, Vector] = {}
    for start, stop in zip([0, *cuts], [*cuts, leaves], strict=True):
        for node in subtrees(range(start, stop), leaves):
            own = {leaf: value for leaf, value in known.items() if start <= leaf[0] < stop}
            parts[node] = add_up(node, own, leaves)
    assert add_up(root(leaves), parts, leaves).tobytes() == whole.tobytes()


def test_missing_micro_batch_is_named() -> None:
    with pytest.raises(KeyError, match="micro batch 1"):
        add_up((0, 2), {(0, 1): np.zeros(1, np.float32)}, 2)
