"""Orders are levels: compared with the processes they give commands once, and none the second time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_sidecar.agent.supervise.ranks import (
    TABLE,
    Command,
    RankProcess,
    Seen,
    Wanted,
    commands_to_reconcile,
    compare_with_order,
    is_admitted,
)
from trainer_sidecar.launcher.protocol import ProcessName


def process(incarnation: int = 1, start: int = 0, *, running: bool = True) -> RankProcess:
    return RankProcess(rank=0, name=ProcessName(incarnation, start), pid=10, running=running)


def wanted(incarnation: int = 1, start: int = 0, *, run: bool = True, admitted: bool = True) -> Wanted:
    return Wanted(rank=0, name=ProcessName(incarnation, start), run=run, admitted=admitted)


def commands(order: Wanted, existing: RankProcess | None, *, can_start: bool = True) -> list[Command]:
    processes = {} if existing is None else {0: existing}
    return [command for command, _ in commands_to_reconcile([order], processes, can_start=can_start)]


def test_the_table_has_a_row_for_every_case() -> None:
    assert set(TABLE) == {(run, case) for run in (True, False) for case in Seen}


@pytest.mark.parametrize(
    ("order", "existing", "expected"),
    [
        (wanted(1), None, [Command.START]),
        (wanted(1), process(1), []),
        (wanted(2), process(1), [Command.KILL]),
        (wanted(2), process(1, running=False), [Command.START]),
        (wanted(1), process(1, running=False), []),
        (wanted(1, 1), process(1, 0), [Command.KILL]),
        (wanted(1, 1), process(1, 0, running=False), [Command.START]),
        (wanted(1), process(2), []),
        (wanted(1, run=False), process(1), [Command.END]),
        (wanted(2, run=False), process(1), [Command.KILL]),
        (wanted(1, run=False), None, []),
    ],
)
def test_one_rank(order: Wanted, existing: RankProcess | None, expected: list[Command]) -> None:
    assert commands(order, existing) == expected


def test_before_the_script_asks_nothing_starts_but_ranks_end() -> None:
    assert commands(wanted(1), None, can_start=False) == []
    assert commands(wanted(2), process(1), can_start=False) == [Command.KILL]


def test_a_rank_without_an_order_is_left_alone() -> None:
    assert commands_to_reconcile([], {0: process(1)}, can_start=True) == []


CASE = st.tuples(st.integers(1, 3), st.integers(0, 2), st.booleans())


@given(CASE, CASE)
def test_carried_out_twice_is_carried_out_once(ordered: tuple[int, int, bool], found: tuple[int, int, bool]) -> None:
    order = wanted(ordered[0], ordered[1], run=ordered[2])
    existing = process(found[0], found[1], running=found[2])
    for _ in range(2):  # a kill, then a start
        for command in commands(order, existing):
            existing = (
                process(order.name.incarnation, order.name.start)
                if command is Command.START
                else process(existing.name.incarnation, existing.name.start, running=False)
            )
    assert commands(order, existing) == []
    assert compare_with_order(existing, order.name) in set(Seen)


def test_only_exactly_the_admitted_process_passes() -> None:
    assert is_admitted(wanted(2), process(2))
    assert not is_admitted(wanted(2), process(1))
    assert not is_admitted(wanted(1), process(2))
    assert not is_admitted(wanted(2, admitted=False), process(2))
    assert not is_admitted(wanted(2), process(2, running=False))
    assert not is_admitted(None, process(2))
    assert not is_admitted(wanted(2), None)
