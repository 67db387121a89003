"""A few vectors with real processes, some behaviours switched off, and the faults only the simulator can be asked for.

`python -m e2e.mindio.conformance` runs all vectors, with `--off` all switches.
"""

from __future__ import annotations

from e2e.mindio.conformance.running import once_more, run_all, run_vector, switch_off
from e2e.mindio.conformance.vector import DIRECTORY, Vector, load, load_all
from e2e.mindio.conformance.world import SIMULATOR

SMOKE = """
inplace-rank-0 inplace-rank-2 inplace-hybrid two-deaths-before-the-naming death-after-the-naming
machine-silent-and-named retry-uce retry-falls-to-recover dump-rank-1-dead dump-without-copy save-and-exit
downgrade downgrade-refuses-rank-0 pause-and-continue hot-switch list-arf-zit api-types api-start-refusals
wire-of-a-rank wire-greeting sigterm-is-ignored
"""
FRONT = {"faults": {2: 1}, "offer": ["exit", "dump", "recover"]}


async def test_vectors_hold() -> None:
    outcomes = await run_all([load(DIRECTORY / f"{name}.yaml") for name in SMOKE.split()], SIMULATOR, 8)
    assert not [(o.vector.name, o.problem) for o in outcomes if o.problem is not None]


async def test_a_behaviour_left_out_is_missed() -> None:
    names = ["second_fault_report", "invalid_strategy", "rename_rule", "sorted_groups", "rank0_not_dropped"]
    assert await switch_off(load_all(), SIMULATOR, names, 5) == []


def simulator(do: list[dict[str, object]], **settings: object) -> Vector:
    return Vector(name="simulator", paragraph="10.2", do=do, more_callbacks=True, **settings)  # type: ignore[arg-type]


async def problem_of(vector: Vector, extra: dict[str, str]) -> str | None:
    """What does not hold, twice in a row: limits are real seconds (see `run_all`)."""
    outcome = await run_vector(vector, SIMULATOR, extra)
    return None if outcome.problem is None else (await once_more(outcome, SIMULATOR, extra)).problem


async def test_serials_end() -> None:
    do: list[dict[str, object]] = [
        {"reach": 2},
        {"kill": [2]},
        {"notify": ["stop_train", {2: 1}]},
        {"callback": ["report_fault_ranks", "ANY", "ANY"]},
        {"callback": ["report_stop_complete", 0, "stop ok", "ANY"]},
        {"notify": ["on_global_rank", {2: 1}]},
        {"callback": ["report_fault_ranks", "ANY", "ANY"]},
        {"callback": ["report_strategies", "ANY", ["exit"]]},
    ]
    last = {"SIM_MINDIO_FIRST_SERIAL": "20001"}
    assert await problem_of(simulator(do), last) is None
    off = {**last, "SIM_MINDIO_OFF": "serials_end"}
    assert (await run_vector(simulator(do), SIMULATOR, off)).problem is not None


async def test_destroy_may_hang() -> None:
    ended: list[dict[str, object]] = [
        {"exits": [0, 1, 2, 3], "code": 0, "within": [-20, 25]},
    ]
    assert await problem_of(simulator(ended, rank={"last_step": 3}), {}) is None
    hangs_silently: list[dict[str, object]] = [
        {"reach": 3},
        {"terminate": [0, 1, 2, 3]},
        {"silence": 8},
        {"alive": [0, 1, 2, 3]},
    ]
    hanging = simulator(hangs_silently, rank={"last_step": 3})
    assert await problem_of(hanging, {"SIM_MINDIO_FAULTS": "destroy_hangs"}) is None


async def test_a_handler_can_be_made_to_raise() -> None:
    do: list[dict[str, object]] = [
        {"reach": 2},
        {"kill": [2]},
        {"front": {**FRONT, "start": [2], "choose": "recover"}},
        {"callback": ["report_result", 406, "do repair failed, ret: 1", {2: 1}, "recover"]},
    ]
    assert await problem_of(simulator(do), {"SIM_MINDIO_FAULTS": "repair_raises"}) is None


async def test_a_rank_can_be_stuck_in_its_update() -> None:
    do: list[dict[str, object]] = [{"wait": 3}, {"stands": [0, 1, 2, 3]}, {"alive": [0, 1, 2, 3]}]
    assert await problem_of(simulator(do), {"SIM_MINDIO_FAULTS": "stuck_in_update"}) is None
