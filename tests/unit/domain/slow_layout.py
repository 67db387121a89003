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
        return rank // self.chips

    def dense_groups(self) -> list[list[int]]:
        """Ranks that differ in data and context only."""
        groups: dict[tuple[int, int], list[int]] = {}
        for rank, (t, _c, _d, p) in enumerate(self.at):
            groups.setdefault((t, p), []).append(rank)
        return list(groups.values())

    def expert_groups(self) -> list[list[int]]:
        """Every dense group dealt out to the expert ranks like cards."""
        return [group[e :: self.ep] for group in self.dense_groups() for e in range(self.ep)]

    def groups(self) -> list[list[int]]:
        return self.dense_groups() + (self.expert_groups() if self.ep > 1 else [])

    def holders(self, group: list[int], rank: int) -> set[int]:
        """Walk round the group in steps of a copy's size."""
        place, offset = group.index(rank), len(group) // min(self.copies, len(group))
        return {group[(place + offset * turn) % len(group)] for turn in range(min(self.copies, len(group)))}

    def copy_survives(self, lost: set[int]) -> bool:
        return all(self.holders(group, rank) - lost for group in self.groups() for rank in group)

    def drop(self, ranks: set[int]) -> set[int]:
        """MindIO's rule, one pass: the same data-parallel rank everywhere, and the same place in experts' groups."""
        data = {self.at[rank][2] for rank in ranks}
        gone = {rank for rank, (_t, _c, d, _p) in enumerate(self.at) if d in data}
        if self.ep > 1:
            places = {group.index(rank) for group in self.expert_groups() for rank in ranks if rank in group}
            hit = {group[place] for group in self.expert_groups() for place in places}
            hit_data = {self.at[rank][2] for rank in hit}
            gone |= {rank for rank, (_t, _c, d, _p) in enumerate(self.at) if d in hit_data}
        return gone

    def isolate(self, lost: set[int]) -> tuple[set[int], set[int], set[int], set[int]]:
        """Dropped data-parallel ranks, ranks, pods, and the first pass."""
        ranks = self.whole_pods(lost)
        first = self.drop(ranks)
        while True:
            more = self.drop(self.whole_pods(ranks)) | self.whole_pods(ranks)
            if more == ranks:
                break
            ranks = more
        return {self.at[rank][2] for rank in ranks}, ranks, {self.pod(rank) for rank in ranks}, first

    def whole_pods(self, ranks: set[int]) -> set[int]:
        pods = {self.pod(rank) for rank in ranks}
        return {rank for rank in range(len(self.at)) if self.pod(rank) in pods}
