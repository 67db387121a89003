"""Whole collections do not look at what has outlived one."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from trainer_sidecar.coordinator.shell import garbage


@pytest.fixture
def collector() -> Iterator[None]:
    before = list(gc.callbacks)
    yield
    gc.callbacks[:] = before
    gc.unfreeze()


@pytest.mark.usefixtures("collector")
def test_what_outlived_a_whole_collection_is_set_aside() -> None:
    garbage.freeze_survivors()
    garbage.freeze_survivors()
    callbacks = [each for each in gc.callbacks if getattr(each, "__module__", "") == garbage.__name__]
    assert len(callbacks) == 1
    kept = [[number] for number in range(1000)]
    gc.collect(0)
    assert any(each is kept for each in gc.get_objects())
    gc.collect()
    assert not any(each is kept for each in gc.get_objects())


class Link:
    """A part of a cycle."""


@pytest.mark.usefixtures("collector")
def test_a_cycle_that_was_set_aside_is_collected_in_the_end() -> None:
    garbage.freeze_survivors()
    link = Link()
    link.itself = link  # type: ignore[attr-defined]
    gone = weakref.ref(link)
    gc.collect()
    del link
    for _ in range(garbage.EVERYTHING_EACH):
        gc.collect()
    assert gone() is None
