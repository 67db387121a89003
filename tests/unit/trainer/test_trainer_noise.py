import numpy as np

from e2e.trainer.noise import bells, below, integers


def test_same_key_same_numbers() -> None:
    assert np.array_equal(integers(5, 100), integers(5, 100))
    assert not np.array_equal(integers(5, 100), integers(6, 100))


def test_numbers_are_spread() -> None:
    values = bells(3, 20000)
    assert abs(values.mean()) < 0.03
    assert abs(values.std() - 1) < 0.03
    assert sorted(set(below(3, 10, 1000))) == list(range(10))
