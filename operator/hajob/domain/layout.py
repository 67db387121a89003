"""The position of every rank in the parallel dimensions: arithmetic only, no tables.

A job of 100,000 ranks is described by eight numbers; every question is answered by a few divisions, so that nothing
grows with the size of the world. Groups are `range` objects or short generators for the same reason. The orders and
the placement of copies are those of the training frameworks and must be computed identically (docs/user/layout.md).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from hajob.domain.errors import LayoutError, RankError
from hajob.domain.text import counted_noun


class RankOrder(StrEnum):
    """Order of the ranks: the coordinate that varies fastest after tensor (and context)."""

    TENSOR_DATA_PIPELINE = "TensorDataPipeline"
    TENSOR_PIPELINE_DATA = "TensorPipelineData"


class Sharding(StrEnum):
    """Distribution of the optimizer's state."""

    DISTRIBUTED = "Distributed"
    NONE = "None"


class CopyKind(StrEnum):
    """The two kinds of parameters that keep copies of their own."""

    DENSE = "Dense"
    EXPERT = "Expert"


class Coordinates(NamedTuple):
    """Position of one rank in every dimension."""

    tensor: int
    context: int
    data: int
    pipeline: int


class CopyRow(NamedTuple):
    """One line of the report group list: the ranks that hold the same shard."""

    kind: CopyKind
    holders: Sequence[int]


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of one job. `world_size` and `data` are derived and checked.

    The experts have a grid of their own over the same ranks (docs/user/layout.md, "Experts"): expert tensor, expert,
    expert data, pipeline. A rank's coordinates in the two grids differ.

    Attributes:
        expert_tensor: tensor-parallel ranks of the experts; 0 in the constructor stands for `tensor`.
        expert_data: ranks that hold the same experts, world / (expert tensor x expert x pipeline). Derived.
        copy_kinds: the kinds of parameters that keep copies; experts only with expert parallelism.
        copy_sizes: each kind with the size of its groups and the number of its copies.

    Raises:
        LayoutError: a size is not positive, or the sizes do not divide.
    """

    num_nodes: int
    chips_per_node: int
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    rank_order: RankOrder = RankOrder.TENSOR_DATA_PIPELINE
    sharding: Sharding = Sharding.DISTRIBUTED
    copies: int = 2
    expert_tensor: int = 0
    world_size: int = field(init=False, default=0)
    data: int = field(init=False, default=0)
    expert_data: int = field(init=False, default=0)
    copy_kinds: tuple[CopyKind, ...] = field(init=False, default=(), repr=False)
    copy_sizes: tuple[tuple[CopyKind, int, int], ...] = field(init=False, default=(), repr=False)
    _copies_of: tuple[int, int] = field(init=False, default=(1, 1), repr=False)

    def __post_init__(self) -> None:
        """Derive world and data-parallel size, refusing sizes that do not divide."""
        for name in ("num_nodes", "chips_per_node", "tensor", "pipeline", "context", "expert", "copies"):
            if getattr(self, name) < 1:
                raise LayoutError(f"{name} is {getattr(self, name)}; it must be at least 1")
        world = self.num_nodes * self.chips_per_node
        data, rest = divmod(world, self.tensor * self.pipeline * self.context)
        if rest or not data:
            raise LayoutError(
                f"{counted_noun(world, 'rank')} ({counted_noun(self.num_nodes, 'node')} x "
                f"{counted_noun(self.chips_per_node, 'chip')}): no multiple of "
                f"tensor {self.tensor} x pipeline {self.pipeline} x context {self.context}"
            )
        # The class is frozen, because layouts are keys of caches: what is derived is set past that.
        object.__setattr__(self, "world_size", world)
        object.__setattr__(self, "data", data)
        self._derive_experts(world)
        sizes = (data * self.context, self.expert_data)
        copies = sizes if self.sharding is Sharding.NONE else tuple(min(self.copies, size) for size in sizes)
        object.__setattr__(self, "_copies_of", copies)
        kinds = (CopyKind.DENSE, CopyKind.EXPERT) if self.expert > 1 else (CopyKind.DENSE,)
        object.__setattr__(self, "copy_kinds", kinds)
        object.__setattr__(self, "copy_sizes", tuple(zip(kinds, sizes, copies, strict=False)))

    def _derive_experts(self, world: int) -> None:
        """Derive the sizes of the experts' grid, by the rules of Megatron's `initialize_model_parallel`."""
        if not self.expert_tensor:
            object.__setattr__(self, "expert_tensor", self.tensor)
        width = self.expert_tensor * self.expert
        expert_data, rest = divmod(world, width * self.pipeline)
        if self.has_expert_grid and (rest or not expert_data):
            raise LayoutError(
                f"{counted_noun(world, 'rank')}: no multiple of expert tensor {self.expert_tensor} x "
                f"expert {self.expert} x pipeline {self.pipeline}"
            )
        # With the pipeline in the middle, both grids cut the world into stages at the same places only if their blocks
        # are of one width; with the pipeline outermost each stage is one run of ranks in either grid.
        middle = self.rank_order is RankOrder.TENSOR_PIPELINE_DATA and self.pipeline > 1
        if self.has_expert_grid and middle and width != self.tensor * self.context:
            raise LayoutError(
                f"in the rank order {self.rank_order.value} the pipelines of experts and dense layers must be the same "
                f"ranks: expert tensor {self.expert_tensor} x expert {self.expert} must equal tensor {self.tensor} x "
                f"context {self.context}"
            )
        object.__setattr__(self, "expert_data", expert_data)

    # ------------------------------------------------------------------ ranks and pods

    def check_rank(self, rank: int) -> int:
        """Return the rank, or raise `RankError` when it is outside the world."""
        if not 0 <= rank < self.world_size:
            ranks = counted_noun(self.world_size, "rank")
            raise RankError(f"rank {rank} is outside the world of {ranks} (0 to {self.world_size - 1})")
        return rank

    def check_node(self, node_rank: int) -> int:
        """Return the node rank, or raise `RankError` when the job has no such node."""
        if not 0 <= node_rank < self.num_nodes:
            raise RankError(f"node rank {node_rank} is outside the job of {counted_noun(self.num_nodes, 'node')}")
        return node_rank

    def node_of_rank(self, rank: int) -> int:
        """Return the node rank of the pod that runs the rank."""
        return self.check_rank(rank) // self.chips_per_node

    def ranks_of_node(self, node_rank: int) -> range:
        """Return the ranks of one pod."""
        first = self.check_node(node_rank) * self.chips_per_node
        return range(first, first + self.chips_per_node)

    def nodes_of_ranks(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Return the node ranks of the pods that run these ranks, ascending."""
        return tuple(sorted({self.check_rank(rank) // self.chips_per_node for rank in ranks}))

    # ------------------------------------------------------------------ coordinates

    def coordinates(self, rank: int) -> Coordinates:
        """Return the coordinates of a rank; the inverse of `rank_at_coordinates`."""
        rest, tensor = divmod(self.check_rank(rank), self.tensor)
        rest, context = divmod(rest, self.context)
        if self.rank_order is RankOrder.TENSOR_DATA_PIPELINE:
            pipeline, data = divmod(rest, self.data)
        else:
            data, pipeline = divmod(rest, self.pipeline)
        return Coordinates(tensor, context, data, pipeline)

    def rank_at_coordinates(self, at: Coordinates) -> int:
        """Return the rank at these coordinates."""
        if self.rank_order is RankOrder.TENSOR_DATA_PIPELINE:
            outer = at.data + self.data * at.pipeline
        else:
            outer = at.pipeline + self.pipeline * at.data
        return at.tensor + self.tensor * (at.context + self.context * outer)

    def data_rank(self, rank: int) -> int:
        """Return the data-parallel rank that this rank belongs to."""
        outer = self.check_rank(rank) // (self.tensor * self.context)
        if self.rank_order is RankOrder.TENSOR_DATA_PIPELINE:
            return outer % self.data
        return outer // self.pipeline

    def ranks_of_data(self, data_rank: int) -> Iterator[int]:
        """Yield every rank of one data-parallel rank, ascending."""
        # Ranks of one data-parallel rank come in runs of tensor x context, one run for each pipeline stage.
        width = self.tensor * self.context
        if self.rank_order is RankOrder.TENSOR_DATA_PIPELINE:
            stride, first, blocks = width * self.data, width * data_rank, self.pipeline
        else:
            stride, first, blocks = width, width * self.pipeline * data_rank, self.pipeline
        for block in range(blocks):
            start = first + stride * block
            yield from range(start, start + width)

    # ------------------------------------------------------------------ copies

    @property
    def dense_group_size(self) -> int:
        """Ranks that share the dense optimizer: data x context."""
        return self.data * self.context

    @property
    def has_expert_grid(self) -> bool:
        """Whether experts are spread otherwise than the dense layers; without it the two grids are one."""
        return self.expert > 1 or self.expert_tensor != self.tensor

    def group_size(self, kind: CopyKind) -> int:
        """Return the size of a copy group of this kind."""
        return self.dense_group_size if kind is CopyKind.DENSE else self.expert_data

    def effective_copies(self, kind: CopyKind) -> int:
        """Return how often each shard exists; without sharding every rank of the group holds everything."""
        return self._copies_of[0] if kind is CopyKind.DENSE else self._copies_of[1]

    def position_in_group(self, rank: int, kind: CopyKind = CopyKind.DENSE) -> tuple[int, int]:
        """Return the key of the rank's copy group and its position in it (groups are sorted by rank)."""
        if kind is CopyKind.EXPERT:
            return self._expert_position(self.check_rank(rank))
        if self.rank_order is RankOrder.TENSOR_DATA_PIPELINE:
            outer, tensor = divmod(self.check_rank(rank), self.tensor)
            pipeline, dense = divmod(outer, self.context * self.data)
        else:
            tensor, context, data, pipeline = self.coordinates(rank)
            dense = context + self.context * data
        return tensor + self.tensor * pipeline, dense

    def _expert_position(self, rank: int) -> tuple[int, int]:
        """As `position_in_group`; the key is (place in the block of one expert grid) + (block size) x pipeline."""
        block = self.expert_tensor * self.expert
        outer, inner = divmod(rank, block)
        if self.rank_order is RankOrder.TENSOR_DATA_PIPELINE:
            pipeline, place = divmod(outer, self.expert_data)
        else:
            place, pipeline = divmod(outer, self.pipeline)
        return inner + block * pipeline, place

    def ranks_of_group(self, key: int, kind: CopyKind = CopyKind.DENSE) -> Sequence[int]:
        """Return a copy group by its key, sorted; a `range` wherever the ranks are evenly spaced."""
        if kind is CopyKind.EXPERT:
            return self._expert_group(key)
        pipeline, tensor = divmod(key, self.tensor)
        size, width = self.dense_group_size, self.tensor
        if self.rank_order is RankOrder.TENSOR_DATA_PIPELINE:
            first = tensor + width * size * pipeline
            return range(first, first + width * size, width)
        # Evenly spaced without context parallelism. With it the context varies inside of the stage and the data
        # outside: the group has gaps of two sizes, which no `range` can say.
        if self.context == 1:
            stride = width * self.pipeline
            first = tensor + width * pipeline
            return range(first, first + stride * size, stride)
        places = ((context, data) for data in range(self.data) for context in range(self.context))
        return tuple(self.rank_at_coordinates(Coordinates(tensor, context, data, pipeline)) for context, data in places)

    def _expert_group(self, key: int) -> range:
        block = self.expert_tensor * self.expert
        pipeline, inner = divmod(key, block)
        if self.rank_order is RankOrder.TENSOR_DATA_PIPELINE:
            first, stride = inner + block * self.expert_data * pipeline, block
        else:
            first, stride = inner + block * pipeline, block * self.pipeline
        return range(first, first + stride * self.expert_data, stride)

    def ranks_at_expert_position(self, place: int) -> Iterator[range]:
        """Yield every rank at this position of its expert group, as runs of consecutive ranks, one for each stage."""
        block = self.expert_tensor * self.expert
        for group in (self._expert_group(block * stage) for stage in range(self.pipeline)):
            yield range(group[place], group[place] + block)

    def expert_rank(self, rank: int) -> int:
        """Return the expert-parallel rank: which part of the experts the rank holds."""
        return self.check_rank(rank) // self.expert_tensor % self.expert

    def copy_offset(self, kind: CopyKind = CopyKind.DENSE) -> int:
        """Return the distance in a group between two holders of the same shard."""
        return self.group_size(kind) // self.effective_copies(kind)

    def holders_of_shard(self, rank: int, kind: CopyKind = CopyKind.DENSE) -> tuple[int, ...]:
        """Return every rank that holds the same shard, the rank itself first, then in the order MindIO asks them."""
        key, place = self.position_in_group(rank, kind)
        size, offset = self.group_size(kind), self.copy_offset(kind)
        group = self.ranks_of_group(key, kind)
        # Copies stand `offset` places apart in the sorted group, and the last ones wrap around to its beginning.
        return tuple(group[(place + offset * turn) % size] for turn in range(self.effective_copies(kind)))

    def first_other_holder(self, rank: int, kind: CopyKind = CopyKind.DENSE) -> int | None:
        """Return the first other holder of the rank's shard, None when there is only one copy."""
        holders = self.holders_of_shard(rank, kind)
        return holders[1] if len(holders) > 1 else None

    def report_group_list(self) -> Iterator[CopyRow]:
        """Yield the holders of each shard, one row for each: the list MindIO prints as "report group list"."""
        for kind in self.copy_kinds:
            # MindIO places copies at even distances in the sorted group (docs/user/layout.md).
            size, offset, copies = self.group_size(kind), self.copy_offset(kind), self.effective_copies(kind)
            for key in range(self.world_size // size):
                group = self.ranks_of_group(key, kind)
                for place in range(offset):
                    yield CopyRow(kind, group[place : place + offset * copies : offset])
