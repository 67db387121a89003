"""`python -m e2e.mindio.conformance [--package DIR] [--jobs N] [--quick] [pattern]`: run the vectors, print a table."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from e2e.mindio.conformance.vector import Vector, load_all
from e2e.mindio.conformance.verbs import Run, UnmetError
from e2e.mindio.conformance.world import SIMULATOR, World


@dataclass
class Outcome:
    """What became of one vector."""

    vector: Vector
    seconds: float
    problem: str | None
    output: list[str]


async def run_vector(vector: Vector, package: Path) -> Outcome:
    """Run one vector against the package in a directory."""
    began = time.monotonic()
    world = World(vector, package)
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


async def run_all(vectors: list[Vector], package: Path, jobs: int, *, verbose: bool = False) -> list[Outcome]:
    """Run vectors side by side, `jobs` at a time, the long ones first."""
    limit = asyncio.Semaphore(jobs)

    async def one(vector: Vector) -> Outcome:
        async with limit:
            outcome = await run_vector(vector, package)
            word = "ok  " if outcome.problem is None else "FAIL"
            print(f"{word} {outcome.seconds:6.1f} s  {vector.name}  (mindio.md §{vector.paragraph})", flush=True)
            if outcome.problem is not None:
                print(f"       {outcome.problem}", flush=True)
                if verbose:
                    print("\n".join(outcome.output), flush=True)
            return outcome

    return await asyncio.gather(*(one(v) for v in vectors))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m e2e.mindio.conformance", description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="part of a vector's name")
    parser.add_argument("--package", type=Path, default=Path(os.environ.get("HAJOB_MINDIO") or SIMULATOR))
    parser.add_argument("--jobs", type=int, default=4 * (os.cpu_count() or 2))
    parser.add_argument("--quick", action="store_true", help="only the vectors marked quick")
    parser.add_argument("--verbose", action="store_true", help="print what the processes of a failed vector wrote")
    options = parser.parse_args()
    vectors = [v for v in load_all(options.pattern) if v.quick or not options.quick]
    began = time.monotonic()
    outcomes = asyncio.run(run_all(vectors, options.package, options.jobs, verbose=options.verbose))
    failed = [o for o in outcomes if o.problem is not None]
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} vectors hold, {time.monotonic() - began:.0f} s")
    return 1 if failed or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
