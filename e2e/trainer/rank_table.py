"""The rank table as HCCL reads it where RANK_TABLE_FILE names one: at the start, and again when groups are rebuilt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from e2e.trainer.events import EventLog


class RankTableError(Exception):
    """A table that HCCL would not take; the rank ends with it."""


def log_rank_table(events: EventLog, environment: Mapping[str, str], rank: int, world: int) -> None:
    """Read the table and log what it says; nothing where none is named.

    Raises:
        RankTableError: it is not complete, or is not one of this rank and this number of ranks.
    """
    path = environment.get("RANK_TABLE_FILE", "")
    if not path:
        return
    try:
        table = json.loads(Path(path).read_text())
        version = Path(path).with_name("version").read_text()
    except (OSError, ValueError) as problem:
        raise RankTableError(f"EI0004: the ranktable {path} is invalid: {problem}") from None
    if table.get("status") != "completed":
        raise RankTableError(f"EI0004: the ranktable {path} is invalid: status is {table.get('status')}")
    pods = {
        int(device["rank_id"]): server["container_ip"] for server in table["server_list"] for device in server["device"]
    }
    if sorted(pods) != list(range(world)) or int(table["server_count"]) != len(table["server_list"]):
        raise RankTableError(f"EI0004: the ranktable {path} has ranks {sorted(pods)}, the training has {world}")
    own = environment.get("POD_IP", "")
    if own and pods[rank] != own:
        raise RankTableError(f"EI0004: the ranktable {path} has rank {rank} at {pods[rank]}, it is at {own}")
    events.add("rank_table", pods=[pods[one] for one in range(world)], version=int(version), form=table["version"])
