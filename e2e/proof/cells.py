"""The matrix: what is done in each of its cells and what must come of it, as plain data.

A cell is an action, a set of ranks and a moment. The fault is done by the ranks themselves at exactly that moment
(e2e/trainer/faults.py). What a rank cannot do to itself, a machine without power or a death while another recovery is
at a certain point, is done by the node set as soon as a rank has marked that it is there: it stands still for a
moment (`HOLD_SECONDS`), so that the point is not passed before the fault is done.

Which action an operator takes follows from what is left to it, so each cell's job allows those actions only that lead
to the wanted one. Ranks are those of four nodes with two chips each, tensor 2, data 4: rank r and rank r + 4 (modulo 8)
hold the same optimizer shard.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

WORLD: Final = 8
CHIPS: Final = 2
ACTIONS: Final = ("Retry", "InPlace", "Replace", "Checkpoint", "Restart")
RANKS: Final[Mapping[str, tuple[int, ...]]] = {"first": (0,), "last": (7,), "two": (5, 6), "node": (4, 5)}
MOMENTS: Final = ("forward", "update", "save", "recovery")
OTHERS: Final[Mapping[str, int]] = {"first": 3, "last": 0, "two": 7, "node": 6}
"""The rank whose recovery is under way when the cell's own fault comes; no partner of it is in the set."""
OBSERVER: Final = 1
"""A rank that lives through every recovery in which a mark is wanted of a survivor."""
HOLD_SECONDS: Final = 1.5
MOST_DEATHS: Final = 5
SILENT_SECONDS: Final = 6.0
"""A node without power is noticed by its silence of three seconds; the point must not be passed before."""

STEP_MILLISECONDS: Final = 100.0
LONG_STEP_MILLISECONDS: Final = 300.0
"""Where a node loses its power: its agent tells of such a step at once (docs/protocols/launcher.md)."""

STANDING_SECONDS: Final = 0.1
"""The ranks of a node have stood still for so long when its power goes: their agent has told of their last step."""

SAVERS: Final = frozenset({0, 1, 2, 3})
"""Ranks that MindIO picks to save, unless they are in its dict; and one that dies after the naming is not."""
UNSAVED: Final = "MindIO picks the rank that has just died to save, answers 499 and leaves only exit"

COPY: Final = "OptimizerCopy"
SAVED: Final = "SavedCheckpoint"
PERIODIC: Final = "PeriodicCheckpoint"


@dataclass(frozen=True)
class Cell:
    """One cell. `name` may be given on the command line."""

    action: str
    ranks: str
    moment: str

    @property
    def name(self) -> str:
        """For example `InPlace/two/update`."""
        return f"{self.action}/{self.ranks}/{self.moment}"


@dataclass(frozen=True)
class Script:
    """How a cell's fault is made, and what must come of it.

    Attributes:
        lines: Faults that ranks do to themselves; `{step}` is the step, made a step with a checkpoint when `at_save`.
        killed: Ranks that the node set kills once every line has been met.
        powered_off: A rank whose node loses its power then.
        allowed: Actions that the job's spec allows.
        action: That the incident ends with.
        by_way_of: Actions that it escalated from, in order.
        restored: Where the lost state comes from.
        renewed: Ranks that have a new process afterwards; all others keep theirs.
        repaired: Ranks that get their shard from their partner.
        note: What is to be known about the cell, for the table.
        apart: Seconds that each of the kills waits after the one before; none: they come at once.
        hang_seconds: Without a step until the training counts as hanging.
    """

    lines: tuple[str, ...]
    allowed: tuple[str, ...]
    action: str
    restored: str
    renewed: frozenset[int]
    repaired: frozenset[int] = frozenset()
    by_way_of: tuple[str, ...] = ()
    killed: tuple[int, ...] = ()
    powered_off: int | None = None
    at_save: bool = False
    apart: tuple[float, ...] = ()
    note: str = ""
    hang_seconds: int = 120

    def step_milliseconds(self, usual: float) -> float:
        """How long a step lasts, where `usual` is asked for."""
        return usual if self.powered_off is None else max(usual, LONG_STEP_MILLISECONDS)

    @property
    def dying(self) -> frozenset[int]:
        """Ranks that are killed, or frozen for good."""
        words = [line.split() for line in self.lines]
        hit = {int(each[0].removeprefix("rank=")) for each in words if {"do=kill", "do=freeze"} & set(each)}
        return frozenset(hit.union(self.killed))

    @property
    def is_from_copies(self) -> bool:
        """Whether the promise is that nobody starts anew."""
        return self.restored == COPY


def matrix() -> list[Cell]:
    """All cells of the matrix, in the order of the table."""
    return [Cell(action, ranks, moment) for action in ACTIONS for ranks in RANKS for moment in MOMENTS]


def cells() -> list[Cell]:
    """The matrix, the cascades, and the cells that MindIO itself leaves with an exit only."""
    return [*matrix(), *(Cell(*key) for key in EXTRA)]


def script(cell: Cell, *, defaults: bool = False, seed: int = 0) -> Script:
    """What is done in a cell; `defaults`: with MindIO's own timers; `seed`: of what a cascade draws."""
    key = (cell.action, cell.ranks, cell.moment)
    if key in CASCADES:
        return _cascade(CASCADES[key], random.Random(f"{seed}/{cell.name}"))
    if defaults and key in WITH_DEFAULTS:
        return WITH_DEFAULTS[key]
    return EXTRA[key] if key in EXTRA else _BY_ACTION[cell.action](cell)


def _lines(ranks: Iterator[int] | tuple[int, ...], moment: str, words: str) -> tuple[str, ...]:
    return tuple(f"rank={rank} step={{step}} at={moment} {words}" for rank in ranks)


def _nodes(ranks: tuple[int, ...] | frozenset[int]) -> frozenset[int]:
    """All ranks of the nodes of these ranks."""
    return frozenset(rank for rank in range(WORLD) if any(rank // CHIPS == one // CHIPS for one in ranks))


def _hold(rank: int, moment: str, seconds: float = HOLD_SECONDS) -> str:
    return f"rank={rank} step={{step}} at={moment} do=slow seconds={seconds}"


def _retry(cell: Cell) -> Script:
    """A memory fault that the rank's own exception tells; during another one: a second later."""
    ranks, words = RANKS[cell.ranks], "do=raise text=UCE_ERROR"
    lines, moment = _lines(ranks, cell.moment, words), cell.moment
    hit = ranks
    if moment == "recovery":
        other = OTHERS[cell.ranks]
        lines = (*_lines((other,), "forward", words), *_lines(ranks, "forward", f"{words} after=1.0"))
        hit = (other, *ranks)
    return Script(
        lines=lines,
        allowed=("Retry", "InPlace", "Replace", "Checkpoint", "Restart"),
        action="Retry",
        restored=COPY,
        renewed=frozenset(),
        repaired=frozenset(hit),
        at_save=moment == "save",
    )


def _in_place(cell: Cell) -> Script:
    """Killed processes; during another recovery: while the first one's successor starts."""
    ranks, hit, killed = RANKS[cell.ranks], RANKS[cell.ranks], tuple[int, ...]()
    lines = _lines(ranks, cell.moment, "do=kill")
    if cell.moment == "recovery":
        other = OTHERS[cell.ranks]
        lines = (*_lines((other,), "forward", "do=kill"), _hold(other, "startup"))
        hit, killed = (other, *ranks), ranks
    return Script(
        lines=lines,
        killed=killed,
        allowed=("InPlace", "Replace", "Checkpoint", "Restart"),
        action="InPlace",
        restored=COPY,
        renewed=frozenset(hit),
        repaired=frozenset(hit),
        at_save=cell.moment == "save",
    )


def _loss(cell: Cell) -> tuple[tuple[str, ...], int | None]:
    """Lines that lose the ranks at the moment: killed, or all of a node frozen and then without power."""
    ranks = RANKS[cell.ranks]
    if cell.ranks == "node":
        return _lines(ranks, cell.moment, "do=freeze"), ranks[0]
    return _lines(ranks, cell.moment, "do=kill"), None


def _during(cell: Cell, rank: int, moment: str) -> tuple[tuple[str, ...], tuple[int, ...], int | None]:
    """Lines of another rank's death and of the mark to wait for; then who is killed, or whose power goes."""
    ranks, is_node = RANKS[cell.ranks], cell.ranks == "node"
    hold = _hold(rank, moment, SILENT_SECONDS if is_node else HOLD_SECONDS)
    lines = (*_lines((OTHERS[cell.ranks],), "forward", "do=kill"), hold)
    return (lines, (), ranks[0]) if is_node else (lines, ranks, None)


def _replace(cell: Cell) -> Script:
    """Pods elsewhere: without InPlace a killed process takes its pod along."""
    ranks = RANKS[cell.ranks]
    (lines, off), killed, hit = _loss(cell), tuple[int, ...](), ranks
    if cell.moment == "recovery":
        other = OTHERS[cell.ranks]
        lines, killed, off = _during(cell, other, "startup")
        hit = (other, *ranks)
    return Script(
        lines=lines,
        killed=killed,
        powered_off=off,
        allowed=("Replace", "Checkpoint", "Restart"),
        action="Replace",
        restored=COPY,
        renewed=_nodes(hit),
        repaired=_nodes(hit),
        at_save=cell.moment == "save",
    )


def _checkpoint(cell: Cell) -> Script:
    """Saved at the step where it stands, then started anew; during another recovery: after the naming."""
    (lines, off), killed = _loss(cell), tuple[int, ...]()
    allowed: tuple[str, ...] = ("Checkpoint", "Restart")
    by_way_of: tuple[str, ...] = ("Checkpoint",)
    if cell.moment == "recovery":
        lines, killed, off = _during(cell, OBSERVER, "rebuild")
        allowed, by_way_of = ("InPlace", *allowed), ("InPlace", "Checkpoint")
    is_exit = cell.moment == "recovery" and bool(SAVERS & set(RANKS[cell.ranks]))
    return Script(
        lines=lines,
        killed=killed,
        powered_off=off,
        allowed=allowed,
        action="Restart",
        by_way_of=by_way_of,
        restored=PERIODIC if is_exit else SAVED,
        renewed=frozenset(range(WORLD)),
        at_save=cell.moment == "save",
        note=UNSAVED if is_exit else "",
    )


def _restart(cell: Cell) -> Script:
    """Everything anew from the periodic checkpoint; during another recovery: while the new ranks start."""
    (lines, off), killed = _loss(cell), tuple[int, ...]()
    if cell.moment == "recovery":
        lines, killed, off = _during(cell, OTHERS[cell.ranks], "startup")
    return Script(
        lines=lines,
        killed=killed,
        powered_off=off,
        allowed=("Restart",),
        action="Restart",
        restored=PERIODIC,
        renewed=frozenset(range(WORLD)),
        at_save=cell.moment == "save",
    )


_BY_ACTION: Final = {
    "Retry": _retry,
    "InPlace": _in_place,
    "Replace": _replace,
    "Checkpoint": _checkpoint,
    "Restart": _restart,
}


def _cascade(further: int, chance: random.Random) -> Script:
    """Rank 0 dies; while its successor starts, others die at random moments, some of them again.

    Who is drawn never leaves a shard without a holder: of a rank and its partner one lives. The successor of rank 0 is
    spared, because it holds the naming off until all are dead.
    """
    mortal = tuple(chance.choice((rank, rank + WORLD // 2)) for rank in range(1, WORLD // 2))
    deaths = tuple(chance.choice(mortal) for _ in range(further))
    ranks = frozenset((0, *deaths))
    return Script(
        lines=(*_lines((0,), "forward", "do=kill"), _hold(0, "startup")),
        killed=deaths,
        allowed=("InPlace", "Replace", "Checkpoint", "Restart"),
        action="InPlace",
        restored=COPY,
        renewed=ranks,
        repaired=ranks,
        apart=tuple(chance.uniform(0, HOLD_SECONDS / MOST_DEATHS) for _ in deaths),
        note=f"{further} more {'death' if further == 1 else 'deaths'} before MindIO is told the names",
    )


CASCADES: Final = {("Cascade", f"{further}-more", "recovery"): further for further in range(1, MOST_DEATHS + 1)}
"""How many more ranks die in them."""

STUCK: Final = (*_lines((1,), "update", "do=stuck seconds=600"), *_lines((7,), "update", "do=kill"))

EXTRA: Final[Mapping[tuple[str, str, str], Script]] = {
    **{key: _cascade(further, random.Random(0)) for key, further in CASCADES.items()},
    ("Cascade", "after-naming", "recovery"): Script(
        lines=(*_lines((0,), "forward", "do=kill"), _hold(OBSERVER, "rebuild")),
        killed=(7,),
        allowed=("InPlace", "Replace", "Checkpoint", "Restart"),
        action="Restart",
        by_way_of=("InPlace", "Checkpoint"),
        restored=SAVED,
        renewed=frozenset(range(WORLD)),
        note="rank 7 dies after MindIO was told the names: 406, saved, no step lost",
    ),
    ("Exit", "saver", "saving"): Script(
        lines=(*_lines((7,), "forward", "do=kill"), "rank=0 at=dump do=kill seconds={step}"),
        allowed=("Checkpoint", "Restart"),
        action="Restart",
        by_way_of=("Checkpoint",),
        restored=PERIODIC,
        renewed=frozenset(range(WORLD)),
        note="a rank that saves dies: MindIO answers 499 and leaves only exit",
    ),
    ("Exit", "stuck", "update"): Script(
        lines=STUCK,
        allowed=("InPlace", "Replace", "Checkpoint", "Restart"),
        action="InPlace",
        restored=COPY,
        renewed=frozenset({1, 7}),
        repaired=frozenset({1, 7}),
        note="rank 1 is stuck in its update, rank 7 dies in it: with an action limit of 30 s MindIO gives rank 1 up",
    ),
}
"""Cells beside the matrix, by action, ranks and moment."""

WITH_DEFAULTS: Final[Mapping[tuple[str, str, str], Script]] = {
    ("Exit", "stuck", "update"): Script(
        lines=STUCK,
        allowed=("InPlace", "Replace", "Checkpoint", "Restart"),
        action="Restart",
        by_way_of=("InPlace",),
        restored=PERIODIC,
        renewed=frozenset(range(WORLD)),
        note="rank 1 is stuck in its update, rank 7 dies in it: MindIO cannot lock the step, which leaves only exit",
    ),
}
"""Cells in which MindIO does something else with timers of its own."""
