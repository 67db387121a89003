"""A few vectors with real processes, some behaviours switched off, and the faults only the simulator can be asked for.

`python -m e2e.mindio.conformance` runs all vectors, with `--off` all switches.
"""

from __future__ import annotations

from e2e.mindio.conformance.running import run_all, run_vector, switch_off
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


async def simulate(do: list[dict[str, object]], extra: dict[str, str], **settings: object) -> str | None:
    vector = Vector(name="simulator", paragraph="10.2", do=do, more_callbacks=True, **settings)  # type: ignore[arg-type]
    return (await run_vector(vector, SIMULATOR, extra)).problem


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
    assert await simulate(do, {"SIM_MINDIO_FIRST_SERIAL": "20001"}) is None
    assert await simulate(do, {"SIM_MINDIO_FIRST_SERIAL": "20001", "SIM_MINDIO_OFF": "serials_end"}) is not None


async def test_destroy_may_hang() -> None:
    ended: list[dict[str, object]] = [
        {"exits": [0, 1, 2, 3], "code": 0, "within": [-20, 25]},
    ]
    assert await simulate(ended, {}, rank={"last_step": 3}) is None
    hangs_silently: list[dict[str, object]] = [
        {"reach": 3},
        {"terminate": [0, 1, 2, 3]},
        {"silence": 8},
        {"alive": [0, 1, 2, 3]},
    ]
    assert await simulate(hangs_silently, {"SIM_MINDIO_FAULTS": "destroy_hangs"}, rank={"last_step": 3}) is None


async def test_a_handler_can_be_made_to_raise() -> None:
    do: list[dict[str, object]] = [
        {"reach": 2},
        {"kill": [2]},
        {"front": {**FRONT, "start": [2], "choose": "recover"}},
        {"callback": ["report_result", 406, "do repair failed, ret: 1", {2: 1}, "recover"]},
    ]
    assert await simulate(do, {"SIM_MINDIO_FAULTS": "repair_raises"}) is None


async def test_a_rank_can_be_stuck_in_its_update() -> None:
    do: list[dict[str, object]] = [{"wait": 3}, {"stands": [0, 1, 2, 3]}, {"alive": [0, 1, 2, 3]}]
    assert await simulate(do, {"SIM_MINDIO_FAULTS": "stuck_in_update"}) is None
