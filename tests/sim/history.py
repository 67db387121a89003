"""One history: a job in a world, what goes wrong by a seed, and the verdict."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tests.sim.checks import Checks, LoggedErrors
from tests.sim.coverage import Cell, counted_cells
from tests.sim.operator_process import OperatorProcess
from tests.sim.specs import settings_of_job
from tests.sim.troubles import KINDS, Troubles
from tests.sim.virtual_time import VirtualLoop
from tests.sim.world import SimWorld, state_of_job

START_SECONDS: Final = 60.0
"""Within which the first trouble comes: some meet the start."""
TROUBLE_SECONDS: Final = 900.0
"""In which things go wrong."""
QUIET_SECONDS: Final = 3600.0
"""In which nothing more goes wrong, and the job comes to train or says why not."""
WELL_SECONDS: Final = 60.0
"""A world that has been well for so long stays so."""


@dataclass
class Outcome:
    """What became of one seed.

    Attributes:
        problems: what did not hold, in words; empty: all did.
        lines: what happened, with its second.
        state: of the job, in the end.
        cells: rows of the operator's state machine that were taken, and how often.
    """

    seed: int
    problems: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    state: str = ""
    cells: Counter[Cell] = field(default_factory=Counter)


def play(seed: int) -> Outcome:
    """Play the history of a seed."""
    random.seed(seed)  # the product's own chance: back-off, jitter
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        outcome = loop.run_until_complete(_live(seed))
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        gc.unfreeze()  # an operator freezes what it has read: it is a process of its own
    return outcome


async def _live(seed: int) -> Outcome:
    world = SimWorld(seed)
    checks, handler = Checks(world), LoggedErrors(world)
    cells: Counter[Cell] = Counter()
    logging.getLogger().addHandler(handler)
    try:
        with OperatorProcess.dialled_by(world.find_training), counted_cells(cells):
            await _go_through(world, checks)
    except Exception as error:  # of the product or of the world: either is to be seen with its seed
        world.note(traceback.format_exc())
        world.problems.append(f"{type(error).__name__}: {error}")
    finally:
        logging.getLogger().removeHandler(handler)
    state = state_of_job((world.job() or {}).get("status") or {})
    return Outcome(seed, world.problems, world.lines, state, cells)


async def _go_through(world: SimWorld, checks: Checks) -> None:
    """Start, cause trouble, wait until all is well again, and look whether it is."""
    chance, troubles = world.chance, Troubles(world)
    world.note(f"the spec sets {json.dumps(settings_of_job(world.manifest))}")
    world.spawn_task(checks.watch_ranks(), "ranks")
    for _ in range(chance.choice([1, 1, 2])):
        world.begin_operator()
    troubles.apply_job()
    await asyncio.sleep(chance.uniform(0, START_SECONDS))
    kinds = chance.sample(KINDS, chance.randint(1, 4))
    end = world.clock.monotonic() + TROUBLE_SECONDS * chance.random()
    for _ in range(chance.randint(1, 8)):
        chance.choice(kinds)(troubles)
        await asyncio.sleep(chance.choice([0.0, 0.05, 0.5, 3.0, 20.0, 120.0]) * chance.random() * 2)
        if world.clock.monotonic() > end:
            break
    world.server.faults.clear()
    await _wait_until_well(world, checks)
    checks.check_end()
    if not world.problems:
        await checks.check_rest()
    for process in world.operators:
        process.kill()


async def _wait_until_well(world: SimWorld, checks: Checks) -> None:
    end, well_since = world.clock.monotonic() + QUIET_SECONDS, 0.0
    while (now := world.clock.monotonic()) < end:
        if not checks.is_well():
            well_since = 0.0
        elif not well_since:
            well_since = now
        elif now - well_since > WELL_SECONDS:
            return
        await asyncio.sleep(5.0)
