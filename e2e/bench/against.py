"""`make bench AGAINST=REV`: this checkout and another revision play in turns on this machine, a cluster for each.

A machine is never as fast as it was an hour ago, so a figure says little beside one of another day. Here both play
round by round: ours, theirs, theirs, ours, and so on. What the machine does meanwhile hits both alike. Each has its
own cluster for the whole comparison, and no training of one is there while the other plays.

The other revision is unpacked below the cache and makes its Python environment there itself; both are removed at the
end. `e2e.bench.player` is what plays on either side.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from e2e.bench.report import WIDTH, in_short
from e2e.bootstrap.paths import CHECKOUT, binaries_directory, cache_directory, logs_directory

ROUNDS_OF_A_TURN: Final = {
    "decision": 100,
    "in-place": 5,
    "replace": 4,
    "event-cost": 1,
    "operator-scale": 1,
    "overhead": 1,
}
"""Sections that can be played against another revision, and how often what they measure is done in one turn: so often
that the start of its training is the smaller part of a turn, and its rest is short beside the drift of a machine."""
OURS, THEIRS = 0, 1
CONFIDENCE: Final = 0.95
RESAMPLES: Final = 2000
FEWEST_VALUES: Final = 5
"""With fewer on a side a resampled interval would look narrower than what is known."""
SEED: Final = 1
"""The same values give the same interval."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Turn:
    """What one side measured in one turn.

    Attributes:
        values: of each figure.
        units: of each figure.
        problems: that left something unmeasured, in words.
    """

    values: Mapping[str, Sequence[float]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    problems: Sequence[str] = ()


Play = Callable[[str, int], Turn]
"""Given a section and its rounds, plays one turn."""


class PlayerEndedError(RuntimeError):
    """The process of one side has ended before its answer."""


class RevisionError(RuntimeError):
    """The other revision cannot be played; the message says why."""


@dataclass(frozen=True)
class Comparison:
    """One figure of both.

    Attributes:
        unit: of both medians.
        ours: median of this checkout; None: it was not measured.
        theirs: median of the other revision; None: it was not measured.
        ratio: ours through theirs; None where either is missing or not above zero.
        interval: in which the ratio lies with 95 % confidence; None with too few values.
    """

    unit: str
    ours: float | None
    theirs: float | None
    ratio: float | None = None
    interval: tuple[float, float] | None = None


def play_alternately(sections: Sequence[str], turns: int, players: Sequence[Play], say: Say) -> list[list[Turn]]:
    """Let both play so many turns of each section; the turns of each side, in pairs by their index.

    The order within a pair changes from pair to pair, since a machine may grow slower all the while. What was played
    before a side broke, or before the user interrupted, is kept: the last turn then has its problem.
    """
    played: list[list[Turn]] = [[], []]
    for section in sections:
        for number in range(turns):
            for side in (OURS, THEIRS) if number % 2 == 0 else (THEIRS, OURS):
                whose = ("ours", "theirs")[side]
                say(f"{section}, turn {number + 1} of {turns}: {whose}")
                try:
                    turn = players[side](section, ROUNDS_OF_A_TURN[section])
                except PlayerEndedError as error:
                    played[side].append(Turn(problems=[f"{whose}: {error}"]))
                    return played
                except KeyboardInterrupt:
                    played[side].append(Turn(problems=["interrupted"]))
                    return played
                problems = [f"{whose}: {words}" for words in turn.problems]
                played[side].append(Turn(turn.values, turn.units, problems))
    return played


def compare(ours: Sequence[Turn], theirs: Sequence[Turn]) -> dict[str, Comparison]:
    """Compare every figure that either side has measured, in the order in which they came."""
    names = dict.fromkeys(name for turn in (*ours, *theirs) for name in turn.values)
    found = {}
    for name in names:
        pairs = [
            (turn.values[name], other.values[name])
            for turn, other in zip(ours, theirs, strict=False)
            if name in turn.values and name in other.values
        ]
        unit = next(turn.units[name] for turn in (*ours, *theirs) if name in turn.units)
        mine, others = _values(ours, name), _values(theirs, name)
        one, two = (statistics.median(values) if values else None for values in (mine, others))
        if one is None or two is None or one <= 0 or two <= 0:
            found[name] = Comparison(unit, one, two)
        else:
            found[name] = Comparison(unit, one, two, one / two, interval(pairs))
    return found


def _values(turns: Sequence[Turn], name: str) -> list[float]:
    return [value for turn in turns for value in turn.values.get(name, ())]


def interval(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> tuple[float, float] | None:
    """Between which values the ratio of both medians lies with 95 % confidence, by resampling.

    Turns are drawn in pairs, and values within a turn: neighbours share the state of the machine, so they are worth
    less than as many values of different hours.

    Args:
        pairs: the values of our turn and of theirs beside it.

    Returns:
        The lower and the upper end; None with fewer than five values on a side, or where a drawn median is not
        above zero.
    """
    if min((sum(len(pair[side]) for pair in pairs) for side in (OURS, THEIRS)), default=0) < FEWEST_VALUES:
        return None
    draw = random.Random(SEED)
    ratios = []
    for _ in range(RESAMPLES):
        drawn = draw.choices(pairs, k=len(pairs))
        medians = []
        for side in (OURS, THEIRS):
            values = [value for pair in drawn if pair[side] for value in draw.choices(pair[side], k=len(pair[side]))]
            medians.append(statistics.median(values) if values else 0.0)
        if min(medians) <= 0:
            return None
        ratios.append(medians[OURS] / medians[THEIRS])
    ratios.sort()
    tail = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return ratios[tail], ratios[-1 - tail]


def table(found: Mapping[str, Comparison]) -> str:
    """Lay the comparison out for people."""
    made = Table(box=box.ASCII_DOUBLE_HEAD)
    made.add_column("measured")
    for name in ("ours", "theirs", "unit", "ratio", "95 % interval"):
        made.add_column(name, justify="left" if name == "unit" else "right")
    for name, one in found.items():
        ends = "{:.2f} - {:.2f}".format(*one.interval) if one.interval else "-"
        ratio = "-" if one.ratio is None else f"{one.ratio:.2f}"
        medians = ("-" if value is None else in_short(value) for value in (one.ours, one.theirs))
        made.add_row(name, *medians, one.unit, ratio, ends)
    output = io.StringIO()
    Console(file=output, width=WIDTH, color_system=None, legacy_windows=False).print(made)
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines())


def line_for_scripts(commit: str, found: Mapping[str, Comparison], problems: Sequence[str]) -> str:
    """Write the comparison as one line of JSON."""
    figures = {
        name: {
            "unit": one.unit,
            "ours": one.ours,
            "theirs": one.theirs,
            "ratio": one.ratio,
            "interval": one.interval,
        }
        for name, one in found.items()
    }
    return json.dumps({"against": commit, "figures": figures, "problems": [*problems]})


class Player:
    """The process of one side."""

    def __init__(self, command: Sequence[str], checkout: Path, environment: Mapping[str, str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*command, "-m", "e2e.bench.player"],
            cwd=checkout,
            env=dict(environment),
            stdin=pipe,
            stdout=pipe,
            text=True,
        )

    def play(self, section: str, rounds: int) -> Turn:
        """Play one turn.

        Raises:
            PlayerEndedError: the process has ended instead.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps({"section": section, "rounds": rounds}) + "\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise PlayerEndedError(f"{section}: its process has ended with {self.process.wait()}; see above")
        return Turn(**json.loads(answer))

    def end(self) -> None:
        """Let it end its cluster, and wait until it has."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


def full_name(revision: str) -> str:
    """Return the commit that a revision names.

    Raises:
        RevisionError: there is none.
    """
    command = ["git", "-C", str(CHECKOUT), "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RevisionError(f"{CHECKOUT} is no git checkout, or knows no revision {revision!r}: see git log")
    return done.stdout.strip()


@contextmanager
def unpacked(commit: str) -> Iterator[Path]:
    """Unpack a commit into a cache of its own; all of it is removed at the end.

    Binaries and kept logs are those of our cache: the same version is not built again, and logs outlive the rest.

    Yields:
        The directory that holds `checkout` and is the other revision's cache.
    """
    base = cache_directory() / "against"
    base.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix=commit[:8], dir=base))
    try:
        for shared in (binaries_directory(), logs_directory()):
            shared.mkdir(parents=True, exist_ok=True)
            (home / shared.name).symlink_to(shared)
        archive = home / "checkout.tar"
        subprocess.run(["git", "-C", str(CHECKOUT), "archive", "-o", str(archive), commit], check=True)
        with tarfile.open(archive) as opened:
            opened.extractall(home / "checkout", filter="data")
        archive.unlink()
        shutil.copy(Path(__file__).with_name("player.py"), home / "checkout/e2e/bench/player.py")
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def set_up(home: Path) -> dict[str, str]:
    """Let the unpacked revision make what it needs; the environment of its processes.

    Raises:
        RevisionError: it could not.
    """
    environment = os.environ | {"HAJOB_CACHE": str(home)}
    done = subprocess.run([*BOOTSTRAP, "-c", "pass"], cwd=home / "checkout", env=environment, check=False)
    if done.returncode:
        raise RevisionError("the other revision's own set-up failed; what it says is above")
    return environment


BOOTSTRAP: Final = (sys.executable, "-m", "e2e.bootstrap")


def measure(revision: str, sections: Sequence[str], turns: int, output: Path | None, say: Say) -> int:
    """Play sections against a revision, print the comparison; 0 unless something could not be measured.

    Args:
        revision: as git names it.
        sections: of ROUNDS_OF_A_TURN.
        turns: of each side and section.
        output: file for the turns with all their values as JSON; None: none is written.
        say: takes a line of progress.

    Raises:
        RevisionError: the revision cannot be played.
    """
    commit = full_name(revision)
    with unpacked(commit) as home:
        say(f"{revision} is {commit[:8]}: its set-up, in {home}")
        environment = set_up(home)
        sides = (
            Player([sys.executable], CHECKOUT, os.environ),
            Player(BOOTSTRAP, home / "checkout", environment),
        )
        try:
            played = play_alternately(sections, turns, [side.play for side in sides], say)
        finally:
            for side in sides:
                side.end()
    found = compare(*played)
    problems = list(
        dict.fromkeys(words for turns_of_side in played for turn in turns_of_side for words in turn.problems)
    )
    if output is not None:
        whole = {name: [turn.values for turn in side] for name, side in zip(("ours", "theirs"), played, strict=True)}
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps({"against": commit, **whole, "problems": problems}, indent=1) + "\n")
    print(table(found))
    for problem in problems:
        print(f"not measured: {problem}", file=sys.stderr)
    print(line_for_scripts(commit, found, problems))
    return 1 if problems else 0
