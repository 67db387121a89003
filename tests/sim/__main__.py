"""`make sim`: play many seeds, or show one.

python -m tests.sim [--seeds N] [--first N] [--cells] [--show SEED]
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import time
from collections import Counter

from tests.sim.coverage import Cell, lines_of_coverage
from tests.sim.history import Outcome, play


def main() -> int:
    """Play."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", type=int)
    parser.add_argument("--cells", action="store_true", help="list the rows of the state machine that none has taken")
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger().addHandler(logging.NullHandler())
    if chosen.show is not None:
        outcome = play(chosen.show)
        print("\n".join(outcome.lines))
        print(outcome.state, *outcome.problems, sep="\n")
        return bool(outcome.problems)
    began, failed, played, ends = time.monotonic(), list[Outcome](), 0, Counter[str]()
    cells: Counter[Cell] = Counter()
    with multiprocessing.Pool(chosen.processes, maxtasksperchild=200) as pool:
        seeds = range(chosen.first, chosen.first + chosen.seeds)
        for outcome in pool.imap_unordered(play, seeds, chunksize=1):
            played += 1
            ends[outcome.state] += 1
            cells += outcome.cells
            if outcome.problems:
                failed.append(outcome)
                print(f"seed {outcome.seed}: {outcome.problems[0][:1000]}", flush=True)
    print(*lines_of_coverage(cells, whole=chosen.cells), sep="\n")
    seconds = time.monotonic() - began
    rate = f"{seconds:.0f} s ({played / seconds:.1f} a second)"
    print(f"sim: {played} seeds, {len(failed)} failed, {rate}, ends {dict(ends)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
