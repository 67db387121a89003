"""Whole collections do not look at what has outlived one."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from trainer_sidecar.coordinator import garbage


@pytest.fixture
def collector() -> Iterator[None]:
    before = list(gc.callbacks)
    yield
    gc.callbacks[:] = before
    gc.unfreeze()


@pytest.mark.usefixtures("collector")
def test_what_outlived_a_whole_collection_is_set_aside() -> None:
    garbage.set_aside()
    garbage.set_aside()
    assert len([each for each in gc.callbacks if each is garbage._collected]) == 1
    kept = [[number] for number in range(1000)]
    gc.collect(0)
    assert any(each is kept for each in gc.get_objects())
    gc.collect()
    assert not any(each is kept for each in gc.get_objects())
