"""`make proof`: every cell of the matrix on whole trainings, then faults at random moments; a page and JSON of it.

It takes half an hour and more, which is why it is no part of `make test`. It ends with 0 when every cell and every
round was as promised.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.run import Run
from e2e.harness.rig import Layout, Rig
from e2e.proof import report
from e2e.proof.cells import ACTIONS, Cell, cells
from e2e.proof.reference import reference
from e2e.proof.stage import Setting, Stage
from e2e.proof.trail import Reference
from e2e.proof.verdict import Result

STEPS = 700
CHIP_NODES = 7


class Proof:
    """One run; what was played before an error is kept."""

    def __init__(self, run: Run, chosen: argparse.Namespace) -> None:
        self.run, self.chosen = run, chosen
        self.results: dict[str, list[Result]] = {}
        self._began = time.monotonic()

    def say(self, words: str) -> None:
        """A line of progress."""
        print(f"{time.monotonic() - self._began:7.1f} s  {words}", flush=True)

    def play(self) -> None:
        """All chosen cells."""
        wanted = chosen_cells(self.chosen)
        self.say(f"{len(wanted)} cells, {self.chosen.rounds} times each; starting the cluster")
        rig = Rig.start_demo(ControlPlane.start(self.run), Layout(chip_nodes=CHIP_NODES))
        self.say("undisturbed training to compare with")
        undisturbed = Reference(reference(self.run, STEPS))
        setting = Setting(self.chosen.step_milliseconds, self.chosen.defaults)
        stage = Stage(rig, undisturbed, setting, self.say)
        for number, cell in enumerate(wanted, 1):
            for _ in range(self.chosen.rounds):
                result = stage.play(cell)
                self.results.setdefault(cell.name, []).append(result)
                self.say(f"[{number:3d}/{len(wanted)}] {line(result)}")
        stage.end_training()


def line(result: Result) -> str:
    """A play in one line, with what was wrong below it."""
    times = "" if result.outage is None else f"outage {result.outage:6.2f} s, control {result.control:5.2f} s  "
    words = "ok    " if result.is_good else "FAILED"
    first = f"{words} {result.cell:24s} {times}{result.action} ({result.seconds:.0f} s)"
    return "\n".join([first, *(f"             {problem}" for problem in result.problems)])


def chosen_cells(chosen: argparse.Namespace) -> list[Cell]:
    """Those that the options mean."""
    found = [cell for cell in cells() if not chosen.only or cell.action in chosen.only]
    patterns = chosen.cells or ["*"]
    return [cell for cell in found if any(fnmatch.fnmatch(cell.name, pattern) for pattern in patterns)]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make proof", description="every recovery at every moment")
    option = parser.add_argument
    option("--only", action="append", choices=(*ACTIONS, "Cascade", "Exit"), help="cells of this action only")
    option("--cells", action="append", metavar="PATTERN", help="cells with such a name, for example '*/two/update'")
    option("--rounds", type=int, default=1, help="plays of each cell (1)")
    option("--defaults", action="store_true", help="MindIO's own timers instead of their useful minimum")
    option("--step-milliseconds", type=float, default=100.0, help="of a step (100)")
    option("--output", type=Path, default=report.RESULTS, help="the JSON file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, print, write; 0 when everything was as promised."""
    chosen = parse(arguments)
    problems: list[str] = []
    with Run.start("the proof") as run:
        proof = Proof(run, chosen)
        try:
            proof.play()
        except KeyboardInterrupt:
            problems.append("interrupted")
        except Exception as error:
            traceback.print_exc()
            problems.append(str(error))
    print(report.table(proof.results))
    print(report.extra_table(proof.results))
    for each in [*report.failures(proof.results), *problems]:
        print(each)
    return 1 if problems or report.failures(proof.results) else 0


if __name__ == "__main__":
    sys.exit(main())
