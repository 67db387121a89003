"""Who is who: coordinates of ranks, optimizer copies and shares of micro batches.

Everything here is pure arithmetic on integers, because every rank, the tests and the comparison of two runs must
come to the same answer without asking anybody. The rules are those of docs/internals/toy-trainer.md ("Layout").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Coordinate(NamedTuple):
    """Place of a rank: tensor, data and pipeline index, each counted from 0."""

    tensor: int
    data: int
    pipeline: int


@dataclass(frozen=True)
class Layout:
    """Sizes of the three kinds of parallelism and the order in which ranks are numbered.

    `tensor_pipeline_data` selects the mapping with the data index slowest; otherwise the pipeline index is slowest.
    """

    tensor: int
    data: int
    pipeline: int
    copies: int = 2
    tensor_pipeline_data: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError when the optimizer's shards cannot be laid out."""
        if min(self.tensor, self.data, self.pipeline, self.copies) < 1:
            raise ValueError(f"every size must be at least 1: {self}")
        if self.data % self.copies:
            raise ValueError(
                f"{self.data} data-parallel ranks cannot hold {self.copies} copies of each optimizer shard; "
                "choose a data-parallel size that the number of copies divides"
            )

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.tensor * self.data * self.pipeline

    @property
    def shards(self) -> int:
        """Number of optimizer shards in one data-parallel group."""
        return self.data // self.copies

    def coordinate(self, rank: int) -> Coordinate:
        """Coordinates of `rank`."""
        tensor, rest = rank % self.tensor, rank // self.tensor
        if self.tensor_pipeline_data:
            return Coordinate(tensor, rest // self.pipeline, rest % self.pipeline)
        return Coordinate(tensor, rest % self.data, rest // self.data)

    def rank(self, tensor: int, data: int, pipeline: int) -> int:
        """Rank at the given coordinates."""
        if self.tensor_pipeline_data:
            return tensor + self.tensor * (pipeline + self.pipeline * data)
        return tensor + self.tensor * (data + self.data * pipeline)

    def data_group(self, rank: int) -> list[int]:
        """Ranks that differ from `rank` in the data index only, ordered by it."""
        tensor, _, pipeline = self.coordinate(rank)
        return [self.rank(tensor, data, pipeline) for data in range(self.data)]

    def tensor_group(self, rank: int) -> list[int]:
        """Ranks that differ from `rank` in the tensor index only, ordered by it."""
        _, data, pipeline = self.coordinate(rank)
        return [self.rank(tensor, data, pipeline) for tensor in range(self.tensor)]

    def neighbour(self, rank: int, stages: int) -> int:
        """Rank `stages` pipeline stages after `rank`."""
        tensor, data, pipeline = self.coordinate(rank)
        return self.rank(tensor, data, pipeline + stages)

    def partner(self, rank: int) -> int:
        """Rank that holds the next copy of the same optimizer shard."""
        tensor, data, pipeline = self.coordinate(rank)
        return self.rank(tensor, (data + self.shards) % self.data, pipeline)

    def shard_of(self, data: int) -> int:
        """Optimizer shard held at a data index: positions i, i + shards, i + 2·shards, … hold the same one."""
        return data % self.shards

    def sources(self, data: int, active: tuple[int, ...]) -> list[int]:
        """For each shard the data index from which position `data` takes its parameters.

        The position's own block of `shards` positions comes first; where that one is gone, the first that is there.
        Raises LookupError when no active position holds a shard.
        """
        block = data // self.shards * self.shards
        found = []
        for shard in range(self.shards):
            holders = [position for position in active if self.shard_of(position) == shard]
            if not holders:
                raise LookupError(f"no data-parallel rank holds optimizer shard {shard}; left are {list(active)}")
            found.append(block + shard if block + shard in holders else holders[0])
        return found


def shares(micro_batches: int, active: tuple[int, ...]) -> dict[int, range]:
    """Micro batches of the global batch for each active data index.

    Every position does an equal part, the first ones do one more each when it does not come out even.
    """
    each, more = divmod(micro_batches, len(active))
    result, start = {}, 0
    for index, position in enumerate(active):
        end = start + each + (index < more)
        result[position] = range(start, end)
        start = end
    return result
