"""What the proof leaves: the matrix for the terminal, docs/internals/proof.md for readers, JSON for machines.

The JSON file is a ledger: a run replaces the cells and rounds that it has played and leaves the others as they are,
each with the time and the version it was played with. The page is made from the ledger. A cell that was not as promised
stands there as such, with what was wrong below.
"""

from __future__ import annotations

import datetime
import functools
import json
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from e2e.bench.report import machine
from e2e.bootstrap.paths import CHECKOUT
from e2e.harness.images import SIMULATOR, mindio_directory
from e2e.proof.cells import (
    ACTIONS,
    EXTRA,
    LONG_STEP_MILLISECONDS,
    MOMENTS,
    RANKS,
    STANDING_SECONDS,
    STEP_MILLISECONDS,
    UNSAVED,
    Cell,
    cells,
    script,
)
from e2e.proof.chance import Round
from e2e.proof.verdict import Result

PAGE: Final = CHECKOUT / "docs/internals/proof.md"
RESULTS: Final = CHECKOUT / "bench/results/proof.json"
RANK_WORDS: Final[Mapping[str, str]] = {
    "first": "rank 0",
    "last": "rank 7",
    "two": "ranks 5 and 6",
    "node": "a node (4, 5)",
}
MOMENT_WORDS: Final[Mapping[str, str]] = {
    "forward": "forward pass",
    "update": "optimizer update",
    "save": "checkpoint being written",
    "recovery": "another recovery",
}
NOT_PLAYED: Final = "–"
FAILED: Final = "**failed**"

SHORT: Final = "short"
"""Part of the ledger: cells played with MindIO's timers at their useful minimum."""
DEFAULT: Final = "default"
"""Cells played with MindIO's own timers."""

Plays = Sequence[Mapping[str, Any]]
Entries = Mapping[str, Any]
"""Cells by name."""
Ledger = dict[str, Any]


@functools.cache
def version() -> str:
    """The commit that was played, with a mark when files were changed since."""
    command = ["git", "-C", str(CHECKOUT), "describe", "--always", "--dirty", "--abbrev=9", "--exclude=*"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def read(path: Path) -> Ledger:
    """The ledger as it is; empty where there is none."""
    try:
        found: Ledger = json.loads(path.read_text())
    except FileNotFoundError:
        found = {}
    return {SHORT: {}, DEFAULT: {}, "random": {}} | found


def enter(ledger: Ledger, results: Mapping[str, Sequence[Result]], *, defaults: bool, seed: int) -> None:
    """Put the plays of a run into the ledger."""
    for name, found in results.items():
        plays = [asdict(each) for each in found]
        ledger[DEFAULT if defaults else SHORT][name] = _stamp() | {"seed": seed, "plays": plays}


def enter_rounds(ledger: Ledger, seed: int, rounds: Iterable[Round], *, defaults: bool) -> None:
    """Put rounds into the ledger; those of another seed go."""
    if ledger["random"].get("seed") != seed:
        ledger["random"] = {"seed": seed, "rounds": {}}
    for each in rounds:
        entry = _stamp() | {"timers": DEFAULT if defaults else SHORT, **each.as_json()}
        ledger["random"]["rounds"][str(each.number)] = entry


def is_whole(ledger: Ledger) -> bool:
    """Whether every cell has been played with short timers: a page of a part would forget the rest."""
    return all(cell.name in ledger[SHORT] for cell in cells())


def write(ledger: Ledger, path: Path, page: Path | None) -> None:
    """Write the ledger, and the page where one is wanted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ledger["machine"] = machine()
    ledger["mindio"] = "simulator" if mindio_directory() == SIMULATOR else str(mindio_directory())
    path.write_text(json.dumps(ledger, indent=1) + "\n")
    if page is not None:
        page.write_text(made_page(ledger))


def _stamp() -> dict[str, str]:
    return {"time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "version": version()}


def plays_of(entries: Entries, cell: Cell) -> Plays:
    """What the ledger holds of a cell."""
    found: Plays = entries.get(cell.name, {}).get("plays", ())
    return found


def word(plays: Plays) -> str:
    """A cell of the table: the p50 of the control share, or that it failed."""
    if not plays:
        return NOT_PLAYED
    if any(each["problems"] for each in plays):
        return FAILED
    return f"{statistics.median(each['control'] for each in plays):.2f} s"


def table(entries: Entries) -> str:
    """The matrix: a row for each action and set of ranks, a column for each moment."""
    lines = [["action", "ranks", *(MOMENT_WORDS[moment] for moment in MOMENTS)]]
    for action in ACTIONS:
        for ranks in RANKS:
            words = [_entry(entries, Cell(action, ranks, moment)) for moment in MOMENTS]
            lines.append([action, RANK_WORDS[ranks], *words])
    return markdown(lines)


def _entry(entries: Entries, cell: Cell) -> str:
    return word(plays_of(entries, cell)) + (" *" if script(cell).note == UNSAVED else "")


def extra_table(entries: Entries, *, defaults: bool = False) -> str:
    """The cells beside the matrix; `defaults`: entries are those with MindIO's own timers."""
    lines = [["cell", "what happens", "ends in", "control share"]]
    for key in EXTRA:
        cell = Cell(*key)
        plays = plays_of(entries, cell)
        ends = f"{plays[-1]['action']}, {plays[-1]['restored']}" if plays else NOT_PLAYED
        note = script(cell, defaults=defaults).note
        lines.append([f"{cell.action} {cell.ranks}", note, ends, word(plays)])
    return markdown(lines)


def random_table(ledger: Ledger) -> str:
    """The rounds, one per line."""
    lines = [["round", "faults", "actions", ""]]
    for number, each in sorted(ledger["random"].get("rounds", {}).items(), key=lambda pair: int(pair[0])):
        done = [*each["done"], *[False] * len(each["faults"])]
        faults = [fault if hit else f"({fault})" for fault, hit in zip(each["faults"], done, strict=False)]
        lines.append([number, ", ".join(faults), "; ".join(each["actions"]), FAILED if each["problems"] else "ok"])
    return markdown(lines)


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table that can be read in a terminal, too."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    padded = [[value.ljust(width) for value, width in zip(line, widths, strict=True)] for line in lines]
    rows = [f"| {' | '.join(line)} |" for line in padded]
    return "\n".join([rows[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *rows[1:]])


def failures(ledger: Ledger) -> list[str]:
    """A line for every sentence about what was not as promised."""
    found = [
        f"{name}{words}: {problem}"
        for part, words in ((SHORT, ""), (DEFAULT, " with MindIO's own timers"))
        for name, entry in ledger[part].items()
        for play in entry["plays"]
        for problem in play["problems"]
    ]
    rounds = ledger["random"].get("rounds", {})
    return found + [f"round {number}: {problem}" for number, each in rounds.items() for problem in each["problems"]]


INTRODUCTION: Final = """\
# The proof

Made by `make proof` (e2e/proof); do not edit. Every cell is a fault in a running training of eight ranks (tensor 2,
data 4, four nodes with two chips), done at exactly this moment: by the rank itself, or by its node as soon as the rank
stands there. The number is the control share, p50 of the cell's plays ({plays}): the outage in the ranks' own logs
without the start-up of new processes, all of it on one machine ({machine}). MindIO here: {mindio}.

A cell counts only when all of this was so:

- one incident, closed as recovered, with the wanted action, and its phases add up to the outage within 100 ms;
- after every step of every rank, parameters, master weights and moments are bitwise those of a training that nothing
  happened to. After a restart too: from the checkpoint on it takes the same steps again;
- `Retry`, `InPlace`, `Replace`: ranks that were not lost keep their process, no step is done twice, no checkpoint is
  opened, and each lost rank gets its shard from its partner;
- `Checkpoint`: every rank loads the step at which the training stood, and goes on with the next one; the incident says
  `Restart`, escalated from `Checkpoint`. `Restart`: every rank loads the newest periodic checkpoint, and the incident
  counts the steps lost;
- no process is left over.

A node that loses its power takes along what its agent has not told. A step of 0.2 s or more is told within some
milliseconds of its end, so the node's silence about it means that it was not finished; of quicker steps nobody can
know, and the incident takes the node to have finished what all others have. So where a node loses its power a step
lasts {long:g} s, elsewhere {step:g} s; its ranks have stood still for {standing:g} s by then.

Nor can anybody know whether a rank that prints nothing had finished the step in which it died, when all others have:
the incident may count that step or not, and begin with its end or the one before.

A play in which only the 100 ms were missed is played again, at most twice: on a busy machine whoever reads is late.

A star: {unsaved}; so the job starts anew from the periodic checkpoint.

How the wanted action is had: the job allows what leads to it. A whole node is powered off, except where processes are
to be restarted on it. "Another recovery" is, for `Retry`, a memory fault a second before; for `InPlace` and `Replace`,
the start of another rank's successor, before MindIO is told the names; for `Checkpoint`, the rebuilding of groups after
the naming; for `Restart`, the start of the new ranks.

Options go into `make proof TESTS="..."`: `--only ACTION`, `--cells PATTERN`, `--rounds N`, `--random N --seed S`,
`--round K`, `--defaults` (MindIO's own timers; the others are at their useful minimum), `--keep` (all logs). What is
not played again keeps its place; each cell's time, version and phases are in `bench/results/proof.json`, which is not
kept in git. This page is written once that file holds every cell.
"""

DEFAULT_WORDS: Final = """
## With MindIO's own timers

The same, with no timer of MindIO shortened (`--defaults`), {plays}.
"""

EXTRA_WORDS: Final = """
## Beside the matrix

Cascades: rank 0 dies, and while its successor starts more ranks do, some of them again, at moments drawn from a seed;
it ends in one recovery. A death after the naming ends in a checkpoint and a restart. Where MindIO leaves nothing but
its exit, the job starts anew from the periodic checkpoint.
"""

RANDOM_WORDS: Final = """
## Faults at random moments

{count} rounds of seed {seed}, {bad} of them not as promised. `make proof TESTS="--random 1 --seed {seed} --round K"`
plays round K again. A round is a training of its own with one to three faults; times count from the moment at which it
is under way, and a fault in brackets found nothing to hit. It must end complete, with every state bitwise the
undisturbed one, every incident closed and no process left over.
"""


def made_page(ledger: Ledger) -> str:
    """docs/internals/proof.md."""
    about = ledger["machine"]
    words = f"{about['cores']} cores, {about['processor']}, load {about['loadBefore']:.0f} at the end"
    rounds = ledger["random"].get("rounds", {})
    parts = [
        INTRODUCTION.format(
            machine=words,
            mindio=ledger["mindio"],
            unsaved=UNSAVED,
            plays=_number_of_plays(ledger[SHORT]),
            standing=STANDING_SECONDS,
            long=LONG_STEP_MILLISECONDS / 1000,
            step=STEP_MILLISECONDS / 1000,
        ),
        table(ledger[SHORT]),
        EXTRA_WORDS,
        extra_table(ledger[SHORT]),
    ]
    if ledger[DEFAULT]:
        parts += [
            DEFAULT_WORDS.format(plays=_number_of_plays(ledger[DEFAULT])),
            table(ledger[DEFAULT]),
            "",
            extra_table(ledger[DEFAULT], defaults=True),
        ]
    if rounds:
        bad = sum(bool(each["problems"]) for each in rounds.values())
        parts += [
            RANDOM_WORDS.format(count=len(rounds), seed=ledger["random"]["seed"], bad=bad or "none"),
            random_table(ledger),
        ]
    wrong = failures(ledger)
    parts += ["\n## What was not as promised\n", *(f"- {each}" for each in wrong or ["nothing"])]
    parts.append(f"\nPlayed with {', '.join(versions(ledger))}.")
    return "\n".join(parts) + "\n"


def _number_of_plays(entries: Entries) -> str:
    counts = sorted({len(entry["plays"]) for entry in entries.values()})
    return f"{' or '.join(map(str, counts)) or 'no'} each"


def versions(ledger: Ledger) -> list[str]:
    """Versions that were played, each with its first and last day."""
    entries = [*ledger[SHORT].values(), *ledger[DEFAULT].values(), *ledger["random"].get("rounds", {}).values()]
    found: dict[str, list[str]] = {}
    for each in sorted(entries, key=lambda one: str(one["time"])):
        found.setdefault(each["version"], []).append(each["time"][:10])
    return [f"{name} ({', '.join(dict.fromkeys(days))})" for name, days in found.items()]
