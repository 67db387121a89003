"""Blocks of addresses 127.R.N.0/24 for the nodes of a run's rigs: no two rigs have one at the same time.

Several processes start rigs in one run. Blocks are given out in turn, so that one that was given back rests for as long
as it can; one that a long test still has is passed over.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LAST = 99
"""Tests that start nodes without a rig use those above."""


class NoBlocksError(RuntimeError):
    """Rigs that still run have all of them."""


def claim(directory: Path, count: int) -> int:
    """Take `count` blocks in a row, from 1 to `LAST`; returns the first. NoBlocksError: there are none."""
    with _ledger(directory) as ledger:
        taken = {block for first, many in ledger["taken"] for block in range(first, first + many)}
        turn = [*range(ledger["next"], LAST + 1), *range(1, ledger["next"])]
        fits = (each for each in turn if each + count <= LAST + 1 and taken.isdisjoint(range(each, each + count)))
        first: int | None = next(fits, None)
        if first is None:
            raise NoBlocksError(f"no {count} blocks in a row are free; rigs have {sorted(taken)}")
        ledger["taken"].append([first, count])
        ledger["next"] = first + count if first + count <= LAST else 1
        return first


def give_back(directory: Path, first: int) -> None:
    """The rig that claimed the blocks from `first` on is gone."""
    with _ledger(directory) as ledger:
        ledger["taken"] = [each for each in ledger["taken"] if each[0] != first]


@contextmanager
def _ledger(directory: Path) -> Iterator[dict[str, Any]]:
    """What is taken, and where the next search begins; for one process at a time."""
    with (directory / "blocks.json").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        ledger = json.loads(file.read() or '{"next": 1, "taken": []}')
        yield ledger
        file.truncate(0)
        file.write(json.dumps(ledger))
