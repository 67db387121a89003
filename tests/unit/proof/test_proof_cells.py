from collections.abc import Iterator

import pytest

from e2e.proof.__main__ import chosen_cells, parse
from e2e.proof.cells import CASCADES, COPY, HOLD_SECONDS, STEP_MILLISECONDS, WORLD, Cell, cells, matrix, script
from e2e.proof.chance import MOST_FAULTS, MOST_POWER_OFFS, WITHIN_SECONDS, draw
from e2e.proof.setup import Setting, job_spec
from e2e.proof.verdict import LAYOUT
from e2e.trainer.faults import Fault
from hajob.domain.actions import FAULT_ACTIONS
from trainer_sidecar.coordinator.state.steps import TOLD_AT_ONCE_SECONDS
from trainer_sidecar.launcher.progress import QUICK, SECOND


def names(*arguments: str) -> list[str]:
    return [cell.name for cell in chosen_cells(parse(arguments))]


def test_the_matrix_is_whole() -> None:
    assert len({cell.name for cell in matrix()}) == 5 * 4 * 4
    assert len({cell.name for cell in cells()}) == len(cells()) > 80


def test_before_a_power_loss_the_agent_tells_each_step_at_once() -> None:
    for cell in cells():
        wanted = script(cell)
        length = wanted.step_milliseconds(STEP_MILLISECONDS) / 1000
        assert wanted.powered_off is None or QUICK / SECOND < TOLD_AT_ONCE_SECONDS <= length
        assert wanted.step_milliseconds(1000.0) == 1000.0


@pytest.mark.parametrize("cell", cells(), ids=lambda cell: cell.name)
def test_every_cell_can_be_played(cell: Cell) -> None:
    wanted = script(cell)
    assert [Fault.parse(line.format(step=7)) for line in wanted.lines]
    assert wanted.action in wanted.allowed
    assert set(wanted.by_way_of) <= set(wanted.allowed)
    assert {entry["name"] for entry in job_spec(wanted, Setting())["recovery"]["actions"]} == set(FAULT_ACTIONS)


@pytest.mark.parametrize(
    "cell", [cell for cell in cells() if script(cell).restored == COPY], ids=lambda cell: cell.name
)
def test_where_copies_are_promised_one_of_each_shard_survives(cell: Cell) -> None:
    lost = script(cell).repaired
    assert {LAYOUT.partner(rank) for rank in lost}.isdisjoint(lost)


@pytest.mark.parametrize("seed", range(20))
def test_a_cascade_is_repeatable_and_leaves_copies_of_all_shards(seed: int) -> None:
    for key, further in CASCADES.items():
        cell = Cell(*key)
        drawn = script(cell, seed=seed)
        assert drawn == script(cell, seed=seed) != script(cell, seed=seed + 1)
        assert len(drawn.killed) == len(drawn.apart) == further
        assert sum(drawn.apart) < HOLD_SECONDS
        assert {LAYOUT.partner(rank) for rank in drawn.repaired}.isdisjoint(drawn.repaired)


def test_cells_are_chosen_by_action_and_pattern() -> None:
    assert names() == [cell.name for cell in cells()]
    assert names("--only", "Retry", "--cells", "*/two/*") == [
        f"Retry/two/{moment}" for moment in ("forward", "update", "save", "recovery")
    ]
    assert names("--random", "3") == []


def rounds() -> Iterator[int]:
    return iter(range(1, 200))


def test_a_round_can_be_drawn_again() -> None:
    assert [draw(7, number) for number in rounds()] == [draw(7, number) for number in rounds()]
    assert draw(7, 1) != draw(8, 1)


def test_rounds_keep_to_what_a_rig_can_bear() -> None:
    for number in rounds():
        faults = draw(7, number)
        assert 1 <= len(faults) <= MOST_FAULTS
        assert sum(fault.kind == "power-off" for fault in faults) <= MOST_POWER_OFFS
        assert all(0 <= fault.rank < WORLD and 0 <= fault.seconds <= WITHIN_SECONDS for fault in faults)
        assert faults == sorted(faults, key=lambda fault: fault.seconds)
