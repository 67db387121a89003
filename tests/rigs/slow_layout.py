"""The arithmetic once more, slow and obvious: tables over the whole world, loops instead of formulas.

Kept apart from the product and written from the rules, not from its code: coordinates are found by counting through
every rank, groups by comparing coordinates, closures by repeating until nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product


@dataclass
class Slow:
    """A job by its sizes; `at[rank]` is (tensor, context, data, pipeline)."""

    nodes: int
    chips: int
    tp: int
    pp: int
    cp: int = 1
    ep: int = 1
    pipeline_before_data: bool = False
    copies: int = 2
    etp: int = 0

    def __post_init__(self) -> None:
        world = self.nodes * self.chips
        self.dp = world // (self.tp * self.pp * self.cp)
        assert self.dp * self.tp * self.pp * self.cp == world
        sizes = (self.pp, self.dp, self.cp, self.tp)
        if self.pipeline_before_data:
            order = [
                (t, c, d, p)
                for d in range(self.dp)
                for p in range(self.pp)
                for c in range(self.cp)
                for t in range(self.tp)
            ]
        else:
            order = [(t, c, d, p) for p, d, c, t in product(*map(range, sizes))]
        self.at = order

    def pod(self, rank: int) -> int:
        """Return the pod of a rank."""
        return rank // self.chips

    def dense_groups(self) -> list[list[int]]:
        """Group ranks that differ in data and context only."""
        groups: dict[tuple[int, int], list[int]] = {}
        for rank, (t, _c, _d, p) in enumerate(self.at):
            groups.setdefault((t, p), []).append(rank)
        return list(groups.values())

    def expert_groups(self) -> list[list[int]]:
        """Count a second grid through, over the same ranks: group ranks that differ in expert data only."""
        etp = self.etp or self.tp
        edp = self.nodes * self.chips // (etp * self.ep * self.pp)
        if self.pipeline_before_data:
            grid = [(t, e, p) for _d in range(edp) for p in range(self.pp) for e in range(self.ep) for t in range(etp)]
        else:
            grid = [(t, e, p) for p in range(self.pp) for _d in range(edp) for e in range(self.ep) for t in range(etp)]
        groups: dict[tuple[int, int, int], list[int]] = {}
        for rank, place in enumerate(grid):
            groups.setdefault(place, []).append(rank)
        return list(groups.values())

    def groups(self) -> list[list[int]]:
        """List all groups whose ranks hold copies of each other."""
        return self.dense_groups() + (self.expert_groups() if self.ep > 1 else [])

    def holders(self, group: list[int], rank: int) -> set[int]:
        """Walk round the group in steps of a copy's size."""
        place, offset = group.index(rank), len(group) // min(self.copies, len(group))
        return {group[(place + offset * turn) % len(group)] for turn in range(min(self.copies, len(group)))}

    def copy_survives(self, lost: set[int]) -> bool:
        """Tell whether somebody is left for everything that these ranks held."""
        return all(self.holders(group, rank) - lost for group in self.groups() for rank in group)

    def aligned(self) -> bool:
        """Tell whether every pod is a block of whole data-parallel ranks of one stage, or a part of one of them."""
        blocks: dict[tuple[int, ...], set[int]] = {}
        stages: dict[int, set[int]] = {}
        for rank, (_t, _c, d, p) in enumerate(self.at):
            blocks.setdefault((d,) if self.pipeline_before_data else (d, p), set()).add(rank)
            stages.setdefault(0 if self.pipeline_before_data else p, set()).add(rank)
        pods = [self.whole_pods({node * self.chips}) for node in range(self.nodes)]
        nested = all(pod <= block or block <= pod or not pod & block for pod in pods for block in blocks.values())
        return nested and all(any(pod <= stage for stage in stages.values()) for pod in pods)

    def drop(self, ranks: set[int]) -> set[int]:
        """Drop by MindIO's rule, one pass: the same data-parallel rank everywhere, and the same place of experts."""
        data = {self.at[rank][2] for rank in ranks}
        gone = {rank for rank, (_t, _c, d, _p) in enumerate(self.at) if d in data}
        if self.ep > 1:
            places = {group.index(rank) for group in self.expert_groups() for rank in ranks if rank in group}
            hit = {group[place] for group in self.expert_groups() for place in places}
            hit_data = {self.at[rank][2] for rank in hit}
            gone |= {rank for rank, (_t, _c, d, _p) in enumerate(self.at) if d in hit_data}
        return gone

    def isolate(self, lost: set[int]) -> tuple[set[int], set[int], set[int], set[int]]:
        """Find the dropped data-parallel ranks, ranks, pods, and the first pass."""
        ranks = self.whole_pods(lost)
        first = self.drop(ranks)
        while True:
            more = self.drop(self.whole_pods(ranks)) | self.whole_pods(ranks)
            if more == ranks:
                break
            ranks = more
        return {self.at[rank][2] for rank in ranks}, ranks, {self.pod(rank) for rank in ranks}, first

    def whole_pods(self, ranks: set[int]) -> set[int]:
        """Find all ranks of the pods of these ranks."""
        pods = {self.pod(rank) for rank in ranks}
        return {rank for rank in range(len(self.at)) if self.pod(rank) in pods}
