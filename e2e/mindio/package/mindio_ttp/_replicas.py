"""Who holds whose data: pure arithmetic on replica groups (docs/protocols/mindio.md §4).

A *kind* is a kind of optimizer (0 dense, 1 MoE); all groups of a kind have the same size and cover the world. Groups
are kept sorted. Nothing here checks that a size is divisible by the count: the real controller does not either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from . import _settings as settings

Usable = Callable[[int], bool]


@dataclass(frozen=True)
class Group:
    """One replica group: its sorted ranks, how many copies it holds, and how far partners are apart."""

    ranks: tuple[int, ...]
    copies: int
    shift: int

    @property
    def offset(self) -> int:
        """How many positions make one whole copy."""
        divisor = self.copies if settings.on("offset_rule") else 1
        return max(1, len(self.ranks) // divisor)

    def holders(self, position: int) -> list[int]:
        """Every rank with the same shard as the rank at `position`, that one first, then its partners in order."""
        if settings.framework_type() == 1:
            return self._shifted(position)
        size, offset = len(self.ranks), self.offset
        places = [position]
        place = (position + offset) % size
        while len(places) < self.copies and place not in places:
            places.append(place)
            place = (place + offset) % size
        return [self.ranks[p] for p in places]

    def _shifted(self, position: int) -> list[int]:
        block = self.block
        if position >= block:
            return [self.ranks[position]]
        places = [(position + k * max(1, self.shift)) % block for k in range(self.copies)]
        return [self.ranks[p] for p in places if p < len(self.ranks)]

    @property
    def block(self) -> int:
        """With partners `shift` apart only the first so many positions have any."""
        return self.copies * max(1, self.shift)

    def rest_lives(self, usable: Usable) -> bool:
        """Whether there are positions behind the block, and all are usable."""
        rest = self.ranks[self.block :]
        return bool(rest) and all(usable(rank) for rank in rest)

    def partner(self, rank: int, usable: Usable) -> int | None:
        """The first usable other holder of `rank`'s shard."""
        others = self.holders(self.ranks.index(rank))[1:]
        if not settings.on("partner_rule"):
            others = list(self.ranks)
        return next((r for r in others if r != rank and usable(r)), None)

    def complete_copy(self, usable: Usable) -> list[int] | None:
        """One usable rank for every shard, or None; the first usable position wins."""
        if self.copies >= len(self.ranks):
            chosen = next((r for r in self.ranks if usable(r)), None)
            return None if chosen is None else [chosen]
        if settings.framework_type() == 1:
            return self._complete_shifted(usable)
        chosen_ranks = []
        for position in range(self.offset):
            places = range(position, len(self.ranks), self.offset)
            holder = next((self.ranks[p] for p in places if usable(self.ranks[p])), None)
            if holder is None:
                return None
            chosen_ranks.append(holder)
        return chosen_ranks

    def _complete_shifted(self, usable: Usable) -> list[int] | None:
        chosen: list[int] = []
        for position in range(len(self.ranks)):
            holder = next((r for r in self.holders(position) if usable(r)), None)
            if holder is None:
                return None
            if holder not in chosen:
                chosen.append(holder)
        return chosen


def make_group(ranks: Iterable[int], copies: int, shift: int) -> Group:
    """A group as the controller keeps it."""
    members = tuple(sorted(ranks)) if settings.on("sorted_groups") else tuple(ranks)
    return Group(members, copies, shift)


@dataclass
class Replicas:
    """What every rank has reported about its groups."""

    world_size: int

    def __post_init__(self) -> None:
        """Start with no report."""
        self.by_rank: dict[int, list[Group]] = {}
        self.data_parallel: dict[int, tuple[int, ...]] = {}

    @property
    def kinds(self) -> int:
        """How many kinds of optimizers were reported."""
        return max((len(groups) for groups in self.by_rank.values()), default=0)

    def groups(self, kind: int) -> list[Group]:
        """The groups of a kind, each once, in order of their first rank."""
        found = {g.ranks: g for gs in self.by_rank.values() if kind < len(gs) for g in (gs[kind],)}
        return [found[key] for key in sorted(found)]

    def consistent(self) -> bool:
        """Whether groups of each kind have one size and add up to the world."""
        if not self.by_rank or len({len(g) for g in self.by_rank.values()}) > 1:
            return False
        for kind in range(self.kinds):
            groups = self.groups(kind)
            sizes = {len(g.ranks) for g in groups}
            uneven = any(len(g.ranks) % g.copies for g in groups) and not settings.on("no_divisibility_check")
            if uneven or len(sizes) != 1 or sum(len(g.ranks) for g in groups) != self.world_size:
                return False
        return True

    def saving_ranks(self, usable: Usable) -> list[list[list[int]]] | None:
        """For each kind, for each group, the ranks that save; None when a group has no complete copy."""
        result = []
        for kind in range(self.kinds):
            chosen = [g.complete_copy(usable) for g in self.groups(kind)]
            if any(c is None for c in chosen):
                return None
            result.append([c for c in chosen if c is not None])
        return result

    def has_copy(self, usable: Usable) -> bool:
        """Whether every shard has a usable holder."""
        return self.saving_ranks(usable) is not None

    def transfers(self, lost: Sequence[int], usable: Usable) -> list[tuple[int, int, int]] | None:
        """(kind, source, destination) of every shard to be sent to `lost`; None when one has no source."""
        result = []
        for kind in range(self.kinds):
            for group in self.groups(kind):
                for rank in sorted(set(lost) & set(group.ranks)):
                    source = group.partner(rank, usable)
                    if source is None:
                        return None
                    result.append((kind, source, rank))
        return result

    def dropped(self, faulty: Iterable[int]) -> set[int]:
        """Every rank at a position that a faulty rank holds in its group, in all groups of that kind; one pass."""
        faulty = set(faulty)
        layers = [[g.ranks for g in self.groups(kind)] for kind in range(self.kinds)]
        if self.data_parallel:
            layers.append(sorted(set(self.data_parallel.values())))
        result = set(faulty)
        for layer in layers:
            places = {members.index(r) for members in layer for r in faulty & set(members)}
            result |= {members[p] for members in layer for p in places if p < len(members)}
        return result
