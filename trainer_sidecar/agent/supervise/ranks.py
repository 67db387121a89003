"""Compare the processes with the order: pure, so that every case can be read in one table.

A NodeOrder is a level. Comparing it with what runs gives the commands for the launcher; applying it twice gives none
the second time. A process is named by rank, incarnation and start, and a name that has been used is never started
again: the coordinator raises `start` (or the incarnation) to get another process.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trainer_sidecar.launcher.protocol import ProcessName


@dataclass(frozen=True)
class RankProcess:
    """The newest process of a rank, as the launcher last described it."""

    rank: int
    name: ProcessName
    pid: int
    running: bool
    exit_code: int = 0
    ordered: bool = False  # its end was asked for
    changed: int = 0  # nanoseconds of the shared clock
    last_lines: tuple[str, ...] = ()
    last_step: int = 0  # that it is to reach, as it prints it; 0 unknown
    notices: Mapping[str, str] = field(default_factory=dict)  # lines that tell how it ends, by kind


@dataclass(frozen=True)
class Wanted:
    """One RankOrder."""

    rank: int
    name: ProcessName
    run: bool
    admitted: bool
    environment: Mapping[str, str] = field(default_factory=dict)
    stacks: int = 0  # how often its stack has been wanted


class Seen(enum.Enum):
    """A rank's newest process, relative to the one that is ordered."""

    NONE = "none"
    OLDER_RUNS = "older runs"
    OLDER_ENDED = "older ended"
    SAME_RUNS = "same runs"
    SAME_ENDED = "same ended"
    NEWER = "newer"


class Command(enum.Enum):
    """Command to the launcher about one rank."""

    NOTHING = "nothing"
    START = "start"
    KILL = "kill"  # at once
    END = "end"  # SIGTERM, a moment, SIGKILL


# (the order says run, what is seen) -> command; an order older than the process is a late one and changes nothing
TABLE: Mapping[tuple[bool, Seen], Command] = {
    (True, Seen.NONE): Command.START,
    (True, Seen.OLDER_RUNS): Command.KILL,
    (True, Seen.OLDER_ENDED): Command.START,
    (True, Seen.SAME_RUNS): Command.NOTHING,
    (True, Seen.SAME_ENDED): Command.NOTHING,
    (True, Seen.NEWER): Command.NOTHING,
    (False, Seen.NONE): Command.NOTHING,
    (False, Seen.OLDER_RUNS): Command.KILL,
    (False, Seen.OLDER_ENDED): Command.NOTHING,
    (False, Seen.SAME_RUNS): Command.END,
    (False, Seen.SAME_ENDED): Command.NOTHING,
    (False, Seen.NEWER): Command.NOTHING,
}


def compare_with_order(process: RankProcess | None, name: ProcessName) -> Seen:
    """Compare a process with the name that is ordered."""
    if process is None:
        return Seen.NONE
    if process.name > name:
        return Seen.NEWER
    if process.name == name:
        return Seen.SAME_RUNS if process.running else Seen.SAME_ENDED
    return Seen.OLDER_RUNS if process.running else Seen.OLDER_ENDED


def commands_to_reconcile(
    wanted: Iterable[Wanted], processes: Mapping[int, RankProcess], *, can_start: bool
) -> list[tuple[Command, Wanted]]:
    """Return the commands that bring the processes nearer to the order.

    Ranks that the order does not name are left alone: a coordinator that has just taken over may know less than the
    ranks that run. Without `can_start` (the script has not launched its ranks, or this pod is over) nothing starts.
    """
    commands: list[tuple[Command, Wanted]] = []
    for order in wanted:
        command = TABLE[order.run, compare_with_order(processes.get(order.rank), order.name)]
        if command is Command.NOTHING or (command is Command.START and not can_start):
            continue
        commands.append((command, order))
    return commands


def runs_as_ordered(wanted: Wanted | None, process: RankProcess | None) -> bool:
    """Return whether exactly the process that is ordered runs."""
    return wanted is not None and process is not None and process.running and process.name == wanted.name


def is_admitted(wanted: Wanted | None, process: RankProcess | None) -> bool:
    """Return whether a rank's links may pass the gate: the order admits exactly the process that runs."""
    return wanted is not None and wanted.admitted and runs_as_ordered(wanted, process)
