"""What a vector file says, read and checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

DIRECTORY = Path(__file__).resolve().parent.parent / "vectors"
CALLBACKS = ("report_fault_ranks", "report_stop_complete", "report_strategies", "report_result")


@dataclass
class Vector:
    """One behaviour; `do` is a list of steps, each a mapping with one verb (see `verbs`)."""

    name: str
    paragraph: str
    do: list[dict[str, Any]]
    points: list[str] = field(default_factory=list)
    ranks: int = 4
    start: list[int] | None = None
    arf: bool = True
    zit: bool = False
    uce: bool = True
    copy: bool = False
    host: int = -1
    groups: list[list[list[int]]] | None = None
    copies: int = 2
    shift: int = 0
    replicas: bool = True
    dp_groups: list[list[int]] | None = None
    callbacks: list[str] = field(default_factory=lambda: list(CALLBACKS))
    env: dict[str, str] = field(default_factory=dict)
    controller_env: dict[str, str] = field(default_factory=dict)
    rank: dict[str, Any] = field(default_factory=dict)
    rank_settings: dict[int, dict[str, Any]] = field(default_factory=dict)
    rank_env: dict[int, dict[str, str]] = field(default_factory=dict)
    gates: list[int] = field(default_factory=list)
    keeps: bool = False
    more_callbacks: bool = False
    quick: bool = False
    real_exit_delay: bool = False
    controller: bool = True
    seconds: float = 150.0
    also_right: str = ""
    outgrown: str = ""

    @property
    def doubt(self) -> str:
        """Why another package may be right where this vector fails; empty: it may not.

        `also_right`: outcomes that it was seen to have as well. `outgrown`: a limit that it counts in sleeps, so that a
        loaded host makes it longer.
        """
        limit = f"a loaded host outgrows its limits: {self.outgrown}" if self.outgrown else ""
        others = f"not the only right outcome: {self.also_right}" if self.also_right else ""
        return "; ".join(filter(None, (others, limit)))

    @property
    def least_seconds(self) -> float:
        """How long it takes at least: the waits that it names."""
        seconds = 0.0
        for step in self.do:
            verb, value = next(iter(step.items()))
            seconds += value if verb in {"wait", "silence", "no_success"} else step.get("for", 0.0)
            seconds += max(0.0, step.get("within", [0.0])[0])
        return seconds

    def groups_of(self, rank: int) -> list[dict[str, Any]] | None:
        """What this rank reports as its replica groups."""
        if not self.replicas:
            return None
        kinds = self.groups or [[list(range(self.ranks))]]
        return [
            {"rank_list": list(group), "replica_cnt": min(self.copies, len(group)), "replica_shift": self.shift}
            for kind in kinds
            for group in kind
            if rank in group
        ]

    def dp_group_of(self, rank: int) -> list[int] | None:
        """Its pure data-parallel group, when it reports one."""
        return next((g for g in self.dp_groups or [] if rank in g), None)


def load(path: Path) -> Vector:
    """Read one file; `ValueError` names the file when it is not a vector."""
    try:
        content = yaml.safe_load(path.read_text())
        return Vector(name=path.stem, **content)
    except (TypeError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {error}") from error


def load_all(pattern: str = "", directory: Path = DIRECTORY) -> list[Vector]:
    """Every vector whose name contains `pattern`, in order of names."""
    return [load(path) for path in sorted(directory.glob("*.yaml")) if pattern in path.stem]
