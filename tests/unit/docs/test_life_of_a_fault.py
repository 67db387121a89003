"""The life of a fault in docs/internals/architecture.md is what the running product does: the walks of `make house`."""

from __future__ import annotations

import asyncio
import re

from e2e.bootstrap.paths import CHECKOUT
from tests.house.walks import Walk
from tests.rigs.walks import exit_to_stop_train, walks_to_orders

LIFE = (CHECKOUT / "docs/internals/architecture.md").read_text(encoding="utf-8").partition("## The life of a fault")[2]
STEPS = re.split(r"\n\d+\. ", LIFE.partition("\n## ")[0])[1:]
FUNCTION = re.compile(r"\[`((?:\w+\.)*[a-z_]\w*)`\]\(\.\./\.\./([^)]+)\)")
"""A link to a function or a method; classes and constants are not called."""

BESIDE_THE_WALKS = {
    "_rows_at_rest",
    "Agents.handle_agent_message",
    "CoordinatorCore.note_answered_call",
    "placements",
    "CoordinatorCore.apply_order",
}
"""Built once, on the other side of a socket, or asked when pods are made."""


def named_in(*numbers: int) -> list[tuple[str, str]]:
    """Return file and name of each function that these steps link to, in the order of the page."""
    return [(path, name) for number in numbers for name, path in FUNCTION.findall(STEPS[number - 1])]


def passed_by(walk: Walk) -> dict[tuple[str, str], int]:
    """Return file and name of each function that a walk has called, with its turn."""
    return {(step.path, step.name): turn for turn, step in enumerate(walk.steps)}


def test_the_life_of_a_fault_has_twelve_steps() -> None:
    assert len(STEPS) == 12


def test_what_the_steps_name_is_called_in_their_order() -> None:
    fault, report = map(passed_by, asyncio.run(walks_to_orders()))
    ended, named = passed_by(exit_to_stop_train()), named_in(*range(2, 10))
    uncalled = {name for path, name in named if not any((path, name) in walk for walk in (fault, report, ended))}
    assert uncalled == BESIDE_THE_WALKS
    for walk, steps in ((fault, range(1, 10)), (report, range(5, 10)), (ended, range(2, 5))):
        turns = [walk[one] for one in named_in(*steps) if one in walk]
        assert len(turns) >= 6
        assert turns == sorted(turns)
