"""Some histories in virtual time hold what must hold, and one number is always the same history."""

from __future__ import annotations

import pytest

from tests.sim.history import play

FEW = range(8)
MORE = range(8, 128)
PARTS = 15
"""Eight histories each: beside much other work a history may take ten times as long as alone, a second or two."""


@pytest.mark.parametrize("seed", FEW)
def test_what_must_hold_holds(seed: int) -> None:
    outcome = play(seed)
    assert outcome.problems == [], "\n".join(outcome.lines)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_it_holds_in_more_histories(part: int) -> None:
    for seed in MORE[part::PARTS]:
        outcome = play(seed)
        assert outcome.problems == [], f"seed {seed}\n" + "\n".join(outcome.lines)


def test_a_number_is_always_the_same_history() -> None:
    assert play(5).lines == play(5).lines
