"""`make proof`: every cell of the matrix on whole trainings, then faults at random moments; a page and JSON of it.

It takes half an hour and more, which is why it is no part of `make test`. It ends with 0 when every cell and every
round that it played was as promised.
"""

from __future__ import annotations

import argparse
import fnmatch
import secrets
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.run import Run
from e2e.harness.rig import Rig, RigLayout
from e2e.proof import report
from e2e.proof.cells import ACTIONS, STEP_MILLISECONDS, Cell, cells
from e2e.proof.chance import Chance, Round
from e2e.proof.reference import reference
from e2e.proof.setup import ScenarioSetup, Setting
from e2e.proof.verdict import Result
from e2e.proof.window import Reference

STEPS = 700
CHIP_NODES = 7


class Proof:
    """One run; what was played before an error is kept."""

    def __init__(self, run: Run, chosen: argparse.Namespace) -> None:
        self.run, self.chosen = run, chosen
        self.results: dict[str, list[Result]] = {}
        self.rounds: list[Round] = []
        self._began = time.monotonic()

    @property
    def is_good(self) -> bool:
        """Whether everything that was played was as promised."""
        cells_are_good = all(one.is_good for found in self.results.values() for one in found)
        return cells_are_good and all(one.is_good for one in self.rounds)

    def say(self, words: str) -> None:
        """A line of progress."""
        print(f"{time.monotonic() - self._began:7.1f} s  {words}", flush=True)

    def play(self) -> Iterator[str | Round]:
        """All chosen cells and rounds; comes back with the name of each cell, and with each round."""
        self.say("starting the cluster")
        rig = Rig.start_demo(ControlPlane.start(self.run), RigLayout(chip_nodes=CHIP_NODES))
        self.say("undisturbed training to compare with")
        undisturbed = Reference(reference(self.run, STEPS))
        setting = Setting(self.chosen.step_milliseconds, self.chosen.defaults, self.chosen.seed)
        yield from self._play_cells(ScenarioSetup(rig, undisturbed, setting, self.say))
        yield from self._play_rounds(Chance(rig, undisturbed, setting, self.say))
        if self.chosen.keep:
            self.say(f"logs will be in {rig.explain()}")

    def _play_cells(self, setup: ScenarioSetup) -> Iterator[str]:
        wanted = chosen_cells(self.chosen)
        if any(cell.action == "Cascade" for cell in wanted):
            self.say(f"cascades are drawn from seed {self.chosen.seed}")
        for number, cell in enumerate(wanted, 1):
            for _ in range(self.chosen.rounds):
                result = setup.play(cell)
                self.results.setdefault(cell.name, []).append(result)
                self.say(f"[{number:3d}/{len(wanted)}] {result.line()}")
                yield cell.name
        setup.end_training()

    def _play_rounds(self, chance: Chance) -> Iterator[Round]:
        wanted = self.chosen.round or range(1, self.chosen.random + 1)
        if self.chosen.random:
            self.say(f"faults at random moments, seed {self.chosen.seed}")
        for number in wanted if self.chosen.random else ():
            self.rounds.append(chance.play(self.chosen.seed, number))
            self.say(f"[{number:3d}/{self.chosen.random}] {self.rounds[-1].line()}")
            yield self.rounds[-1]


def chosen_cells(chosen: argparse.Namespace) -> list[Cell]:
    """Those that the options mean: all, or none where only rounds are asked for."""
    if chosen.random and not chosen.only and not chosen.cells:
        return []
    found = [cell for cell in cells() if not chosen.only or cell.action in chosen.only]
    return [cell for cell in found if any(fnmatch.fnmatch(cell.name, pattern) for pattern in chosen.cells or ["*"])]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make proof", description="every recovery at every moment")
    option = parser.add_argument
    option("--only", action="append", choices=(*ACTIONS, "Cascade", "Exit"), help="cells of this action only")
    option("--cells", action="append", metavar="PATTERN", help="cells with such a name, for example '*/two/update'")
    option("--rounds", type=int, default=1, help="plays of each cell (1)")
    option("--random", type=int, default=0, metavar="N", help="instead: N rounds of faults at random moments")
    option("--seed", type=int, default=secrets.randbelow(1_000_000), help="of rounds and cascades (drawn, and printed)")
    option("--round", type=int, action="append", metavar="K", help="of the rounds only this one, may be repeated")
    option("--defaults", action="store_true", help="MindIO's own timers instead of their useful minimum")
    option("--step-milliseconds", type=float, default=STEP_MILLISECONDS, help=f"of a step ({STEP_MILLISECONDS:g})")
    option("--keep", action="store_true", help="keep all logs, also when all is well")
    page = "the JSON file; the default one makes docs/internals/proof.md, too, once it holds every cell"
    option("--output", type=Path, default=report.RESULTS, help=page)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, print, write; 0 when everything was as promised."""
    chosen = parse(arguments)
    problem = ""
    with Run.start("the proof") as run:
        proof = Proof(run, chosen)
        try:
            for played in proof.play():
                save(proof, played, chosen)
        except KeyboardInterrupt:
            problem = "interrupted"
        except Exception as error:
            traceback.print_exc()
            problem = str(error)
    played = report.read(chosen.output)[report.DEFAULT if chosen.defaults else report.SHORT]
    print(report.table(played), report.extra_table(played, defaults=chosen.defaults), sep="\n\n")
    if problem:
        print(f"not played to the end: {problem}", file=sys.stderr)
    return 0 if proof.is_good and not problem else 1


def save(proof: Proof, played: str | Round, chosen: argparse.Namespace) -> None:
    """Write down what has just been played: a run of this length may be ended early."""
    ledger = report.read(chosen.output)
    if isinstance(played, Round):
        report.enter_rounds(ledger, chosen.seed, [played], defaults=chosen.defaults)
    else:
        report.enter(ledger, {played: proof.results[played]}, defaults=chosen.defaults, seed=chosen.seed)
    makes_page = chosen.output == report.RESULTS and report.is_whole(ledger)
    report.write(ledger, chosen.output, report.PAGE if makes_page else None)


if __name__ == "__main__":
    sys.exit(main())
