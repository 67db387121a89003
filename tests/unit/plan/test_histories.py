"""Thousands of histories of nodes that are lost and come back: sizes always legal, and the original one in the end.

`make nightly` plays 100,000 of them (`HAJOB_HISTORIES`).
"""

from __future__ import annotations

import os

import pytest

from tests.unit.plan.histories import LAYOUTS, History

HISTORIES = int(os.environ.get("HAJOB_HISTORIES", "1000"))
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_every_history_ends_at_the_original_size(part: int) -> None:
    grown = shrunk = given_up = smaller = 0
    layouts = set()
    for seed in range(part, HISTORIES, PARTS):
        life = History(seed).live()
        assert life.ended_well(), (
            f"seed {seed}: {life.state.phase} {life.failed} {life.state.shrunk} {life.state.smaller}"
        )
        grown, shrunk = grown + len(life.grown), shrunk + sum(after < life.whole.data for after in life.sizes)
        smaller += len(life.smaller)
        given_up += bool(life.failed)
        layouts.add(LAYOUTS.index(life.whole))
    if HISTORIES >= 2000:
        assert len(layouts) == len(LAYOUTS)
        assert smaller > HISTORIES / PARTS / 8, "few starts were smaller"
        assert min(grown, shrunk) > HISTORIES / PARTS / 4, "little has happened"
        assert given_up < HISTORIES / PARTS / 50
