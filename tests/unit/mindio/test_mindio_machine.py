"""The state machine is its table: closed, reachable, and every state has somebody who works."""

from __future__ import annotations

from mindio_ttp._machine import TABLE, State
from mindio_ttp._states import WORK


def test_every_state_but_the_ends_has_work() -> None:
    assert set(WORK) == set(State) - {State.INIT, State.FINAL}


def test_every_state_is_reached_and_final_is_reachable_from_all() -> None:
    following: dict[State, set[State]] = {state: set() for state in State}
    for (state, _), target in TABLE.items():
        following[state].add(target)
    assert set().union(*following.values()) == set(State) - {State.INIT}
    assert not following[State.FINAL]
    ends = {State.FINAL}
    for _ in State:
        ends |= {state for state, targets in following.items() if targets & ends}
    assert ends == set(State)
