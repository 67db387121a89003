"""Running vectors: one, all side by side, and each behaviour of the simulator switched off in turn."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from e2e.mindio.conformance.evaluator import UnmetError
from e2e.mindio.conformance.vector import Vector
from e2e.mindio.conformance.verbs import Run
from e2e.mindio.conformance.world import World


@dataclass
class Outcome:
    """What became of one vector; `again` when this was the second attempt, alone."""

    vector: Vector
    seconds: float
    problem: str | None
    output: list[str]
    again: bool = False


async def run_vector(vector: Vector, package: Path, extra: dict[str, str] | None = None) -> Outcome:
    """Run one vector against the package in a directory, with more environment."""
    began = time.monotonic()
    world = World(vector, package, extra)
    problem: str | None = None
    try:
        await world.begin()
        await asyncio.wait_for(Run(world).perform(), vector.seconds)
    except UnmetError as error:
        problem = str(error)
    except TimeoutError:
        problem = f"not done after {vector.seconds} s"
    finally:
        await world.end()
    output = [f"{m.key}: {line}" for m in world.members.values() for line in m.output]
    return Outcome(vector, time.monotonic() - began, problem, output)


async def run_all(vectors: list[Vector], package: Path, jobs: int) -> list[Outcome]:
    """Run vectors side by side, `jobs` at a time, long ones first.

    Those that do not hold run again one at a time: their limits are real seconds, and a machine loaded several times
    over breaks them. What needed that is said.
    """
    limit = asyncio.Semaphore(jobs)

    async def one(vector: Vector) -> Outcome:
        async with limit:
            return tell(await run_vector(vector, package))

    order = sorted(vectors, key=lambda v: -v.least_seconds)
    outcomes = await asyncio.gather(*(one(v) for v in order))
    return [o if o.problem is None else await once_more(o, package) for o in outcomes]


async def once_more(outcome: Outcome, package: Path, extra: dict[str, str] | None = None) -> Outcome:
    """A second attempt, alone."""
    second = await run_vector(outcome.vector, package, extra)
    second.again = True
    return tell(second)


def tell(outcome: Outcome) -> Outcome:
    """Print a line."""
    word = "FAIL" if outcome.problem is not None else "again" if outcome.again else "ok"
    vector = outcome.vector
    print(f"{word:5} {outcome.seconds:6.1f} s  {vector.name}  (mindio.md §{vector.paragraph})", flush=True)
    if outcome.problem is not None:
        print(f"        {outcome.problem}", flush=True)
        if vector.doubt:
            print(f"        {vector.doubt}", flush=True)
    return outcome


async def switch_off(vectors: list[Vector], package: Path, behaviours: list[str], jobs: int) -> list[str]:
    """Switch each behaviour off and run the vectors bound to it until one fails; the behaviours nobody missed."""
    limit = asyncio.Semaphore(jobs)

    async def one(behaviour: str) -> str | None:
        bound = sorted((v for v in vectors if behaviour in v.points), key=lambda v: v.least_seconds)
        async with limit:
            for vector in bound:
                outcome = await run_vector(vector, package, {"SIM_MINDIO_OFF": behaviour})
                if outcome.problem is not None:
                    print(f"missed {behaviour}: {vector.name}: {outcome.problem}", flush=True)
                    return None
        print(f"NOBODY MISSED {behaviour} in {[v.name for v in bound]}", flush=True)
        return behaviour

    return [b for b in await asyncio.gather(*(one(b) for b in behaviours)) if b is not None]
